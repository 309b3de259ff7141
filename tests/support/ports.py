"""Free TCP ports on loopback."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on right now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def free_range(size: int) -> tuple[int, int]:
    """A run of free ports, first and last: below the ephemeral ones, so that no client takes one.

    It is this process's until it ends: an engine may bind its port long after it was given one, and
    test runs beside this one must not have taken it by then.
    """
    blocks = -(-size // _BLOCK)
    for first in range(20000, 32000, blocks * _BLOCK):
        starts = range(first, first + blocks * _BLOCK, _BLOCK)
        ports = range(first, first + size)
        if all(_reserve(start) for start in starts) and all(_is_free(port) for port in ports):
            return first, first + size - 1
    raise AssertionError("no run of free ports")


_BLOCK = 10
_RESERVED: dict[int, int] = {}
"""Descriptors by first port: the locks go with the process, however it ends."""


def _reserve(first: int) -> bool:
    """False: this process or another has it."""
    if first in _RESERVED:
        return False
    folder = Path(tempfile.gettempdir()) / "flotilla-test-ports"
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _RESERVED[first] = descriptor
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
