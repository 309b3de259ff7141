"""The ports that `flotilla up` uses, kept in its data folder: the next `up` takes them again, and
operator verbs find the management API by them.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from services.runtime.files import write_atomically


class Ports(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where everything of one machine listens, all on loopback."""

    router: int = 8000
    control: int = 7400
    router_admin: int = 7401
    agent: int = 7402
    nats: int = 4222
    nats_monitor: int = 0
    """0: a free one, another at each start; nobody but control asks there."""
    engines: tuple[int, int] = (17000, 17999)


def recall(data: Path) -> Ports | None:
    """None where no `up` has run with this folder, or its file is not whole."""
    try:
        return msgspec.json.decode(_file(data).read_bytes(), type=Ports)
    except (OSError, msgspec.DecodeError):
        return None


def remember(data: Path, ports: Ports) -> None:
    """For the next `up`."""
    write_atomically(_file(data), msgspec.json.format(msgspec.json.encode(ports), indent=2) + b"\n")


def _file(data: Path) -> Path:
    return data / "up.json"
