"""One agent a data folder."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 3.0
"""A predecessor may be on its way out."""
PAUSE_SECONDS = 0.05


class Locked(Exception):
    """Another agent holds the folder."""


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Held until left, or until the process ends, however it ends. Raises Locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Locked(f"another agent runs on {path.parent.parent}") from None
            time.sleep(PAUSE_SECONDS)
        else:
            return
