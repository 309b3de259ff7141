"""Who holds a port. Best effort: /proc tells only about processes of the same user, and only on Linux."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"


def free(port: int) -> bool:
    """Whether loopback's `port` can be listened on now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def holder(port: int, proc: Path = Path("/proc")) -> str:
    """`pid 4242 (nginx)`, or empty when it cannot be told."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return ""
    for process in proc.iterdir():
        if process.name.isdigit() and sockets & set(_open_files(process)):
            return f"pid {process.name} ({_name(process)})"
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Inodes of the sockets that listen on `port`."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            local, state, inode = fields[1], fields[3], fields[9]
            if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield inode


def _open_files(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            yield os.readlink(descriptor)  # noqa: PTH115  # Not a path: `socket:[123]`.
    except OSError:  # It ended meanwhile, or is another user's.
        return


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "?"
