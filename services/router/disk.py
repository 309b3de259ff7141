"""The router's copy on disk: what it serves from when it starts and NATS is away.

A copy that is missing, unreadable, torn or of another form counts as none; a disk that is full or read-only costs
a warning and nothing else.
"""

from pathlib import Path

import msgspec
import structlog

from schemas import codec
from services.router.routing import Copy
from services.runtime.files import read_if_there, write_atomically

COPY = "table.json"

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def load(folder: Path) -> Copy | None:
    """What the last run kept."""
    try:
        content = read_if_there(folder / COPY)
        return None if content is None else codec.decode(content, Copy)
    except (OSError, msgspec.DecodeError) as error:
        log.warning("router.copy_unreadable", reason=str(error))
        return None


def save(folder: Path, copy: Copy) -> bool:
    """Blocks for the disk. False: it refused."""
    try:
        write_atomically(folder / COPY, codec.encode(copy))
    except OSError as error:
        log.warning("router.copy_not_written", reason=error.strerror)
        return False
    return True
