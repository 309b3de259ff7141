"""Where `flotilla up` lets other machines in, kept in its data folder like its ports."""

from pathlib import Path

import msgspec
from msgspec import Struct

from ctl.remembered import Ports
from schemas.ids import NodeId, RouterId, token
from services.fleet.addresses import Address
from services.log import server
from services.log.door import Door
from services.log.permissions import User
from services.runtime.files import write_atomically

LOOPBACK = server.LOOPBACK
ADMIN = User("admin")
OPERATOR = User("operator", "cli")
"""For the `nats` command line, and to read the journal: reads everything."""


class Doors(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Paths are absolute; empty: none."""

    listen: str = ""
    """Address of this machine that others use; empty: loopback only, and NATS has no users."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    @property
    def is_open(self) -> bool:
        """Whether anything listens beyond loopback."""
        return bool(self.listen)

    @property
    def host(self) -> str:
        """What listens there for other machines, and what they use."""
        return self.listen or LOOPBACK

    @property
    def tls(self) -> server.Tls | None:
        """What NATS shows its clients."""
        if not self.tls_cert:
            return None
        return server.Tls(Path(self.tls_cert), Path(self.tls_key))

    @property
    def ca(self) -> Path | None:
        """What clients check that by."""
        return Path(self.tls_ca) if self.tls_ca else None


CLOSED = Doors()


def nats_url(doors: Doors, ports: Ports) -> str:
    """For every client: with TLS, nothing is said without it."""
    return f"{'tls' if doors.tls else 'nats'}://{Address(doors.host, ports.nats).text}"


def control_url(doors: Doors, ports: Ports) -> str:
    """Of the management API."""
    return f"http://{Address(doors.host, ports.control).text}"


def door(data: Path, doors: Doors, ports: Ports, user: User) -> Door:
    """Of one user; without doors, of nobody."""
    url = nats_url(doors, ports)
    if not doors.is_open:
        return Door(url=url)
    return Door(url=url, user=user.text, password_file=users_folder(data) / user.text, ca=doors.ca)


def agent_user(node: NodeId) -> User:
    """Of the agent of one node."""
    return User("agent", token(node))


def router_user(router: RouterId) -> User:
    """Of one router."""
    return User("router", token(router))


def users_folder(data: Path) -> Path:
    """A file each, named by the user; its content is the password."""
    return data / "nats" / "users"


def recall_doors(data: Path) -> Doors:
    """Closed where no `up` has run with this folder, or its file is not whole."""
    try:
        return msgspec.json.decode(_file(data).read_bytes(), type=Doors)
    except (OSError, msgspec.DecodeError):
        return CLOSED


def remember_doors(data: Path, doors: Doors) -> None:
    """For the next `up`, and for verbs that ask the one that runs."""
    content = msgspec.json.format(msgspec.json.encode(doors), indent=2) + b"\n"
    write_atomically(_file(data), content)


def _file(data: Path) -> Path:
    return data / "doors.json"
