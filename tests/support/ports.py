"""Free TCP ports on loopback, each handed out once.

All are below the ephemeral ones, so that no client's own end takes one while its server is away, and
each run of tests takes from chunks that it holds by a lock, so that two runs side by side do not meet:
a program may bind its port long after it was given one.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

_FIRST, _END = 10000, 32000
_CHUNK = 200


class _Chunks:
    """What this process holds. The locks go with it, however it ends."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._untried = iter(range(_FIRST, _END, _CHUNK))
        self._locks: list[int] = []

    def take(self, size: int) -> int:
        """The first of `size` ports in a row."""
        while True:
            if self._next + size > self._end:
                self._another()
            first = self._next
            taken = [port for port in range(first, first + size) if not _is_free(port)]
            self._next = taken[-1] + 1 if taken else first + size
            if not taken:
                return first

    def _another(self) -> None:
        for first in self._untried:
            if self._lock(first):
                self._next, self._end = first, first + _CHUNK
                return
        raise AssertionError("no ports are left for tests")

    def _lock(self, first: int) -> bool:
        """False: another run has it."""
        folder = Path(tempfile.gettempdir()) / "flotilla-test-ports"
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True


_CHUNKS = _Chunks()


def free_port() -> int:
    """A port that nobody listens on."""
    return _CHUNKS.take(1)


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on."""
    return [free_port() for _ in range(count)]


def free_range(size: int) -> tuple[int, int]:
    """A run of free ports, first and last."""
    first = _CHUNKS.take(size)
    return first, first + size - 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
