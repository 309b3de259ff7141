"""A join file, as the agent of a second machine is started with: its node's name, and its way into NATS.

How it fails: ValueError with the reason in words, before anything is started.
"""

import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog

from schemas.joining import FORMAT, Joining
from services.log.door import Door
from services.runtime.files import unusable, write_atomically

_PRIVATE = 0o600
_OTHERS = 0o077

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Any(msgspec.Struct):
    flotilla_join: int


def read(file: Path) -> Joining:
    """Raises ValueError. Said in the log: others may read the file, too."""
    try:
        content, mode = file.read_bytes(), stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        raise ValueError(f"the join file {file} cannot be read: {error.strerror}") from error
    if mode & _OTHERS:
        log.warning(
            "join.readable_by_others", file=str(file), mode=f"{mode:04o}", next=f"chmod 600 {file}"
        )
    try:
        version = msgspec.json.decode(content, type=_Any).flotilla_join
        if version == FORMAT:
            return msgspec.json.decode(content, type=Joining)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"{file} is no join file; `flotilla join create NODE` makes one"
        ) from error
    raise ValueError(f"the join file {file} is of version {version}, and {FORMAT} is known here")


def unpack(joining: Joining, data: Path) -> Door:
    """Keeps what NATS' client wants in files. Raises ValueError."""
    folder = data / "agent" / "door"
    password, ca = folder / "password", folder / "ca.pem"
    try:
        write_atomically(password, f"{joining.password}\n".encode(), _PRIVATE)
        if joining.ca:
            write_atomically(ca, joining.ca.encode())
    except OSError as error:
        raise ValueError(unusable(data, error)) from error
    return Door(
        url=joining.url,
        user=joining.user,
        password_file=password,
        ca=ca if joining.ca else None,
    )


def own_address(url: str) -> str:
    """This machine's address towards a server: others are reached by that way, and reach us by it.

    Nothing is sent. Raises ValueError where there is no way.
    """
    server = urlsplit(url.split(",", maxsplit=1)[0])
    try:
        found = socket.getaddrinfo(server.hostname, server.port, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ValueError(f"no way to {server.netloc}: {error.strerror}") from error
