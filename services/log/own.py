"""What stands under one program's own name, for it to put right what is not as it told.

How it fails: as `snapshot.get` and `streams.subjects_in`, by Unavailable, never by a part of it.
"""

from typing import TypeVar

from schemas import subjects
from schemas.documents import Document
from schemas.events import log_prefix
from schemas.ids import LogId
from services.fleet.reading import Read, read_any
from services.log.connect import Connection
from services.log.snapshot import get
from services.log.streams import subjects_in

D = TypeVar("D", bound=Document)


async def own_documents(
    connection: Connection, pattern: str, kind: type[D], log_id: LogId
) -> dict[str, D | None]:
    """By log subject; None is what cannot be read, or must not be acted on.

    Neither what is gone nor what the genesis voids.
    """
    found: dict[str, D | None] = {}
    began: int | None = None
    for subject in sorted(await subjects_in(connection, pattern)):
        if (stored := await get(connection, subject)) is None:
            continue
        match read_any(subject, stored.payload, kind):
            case Read(event=event, document=document) if event.log == log_prefix(log_id):
                if isinstance(document, kind):
                    found[subject] = document
            case _:
                began = await _began(connection) if began is None else began
                if stored.sequence > began:
                    found[subject] = None
    return found


async def _began(connection: Connection) -> int:
    """LOG sequence of the genesis; 0: there is none."""
    genesis = await get(connection, subjects.GENESIS)
    return 0 if genesis is None else genesis.sequence
