"""The fleet as it was at a sequence of LOG.

From the newest checkpoint at or below it, or from where the log began; and what STATE holds now will
do for what is newer. So it is byte-equal to the fold of every event up to that sequence.

How it fails:
- NATS away: Unavailable. No LOG: LogMissing.
- A checkpoint is of no use: said, and an older one is taken.
- LOG's age has taken what a fold would begin with: NotKept, with what can still be shown.
"""

import structlog
from msgspec import Struct

from schemas import codec
from schemas.ids import LogId
from services.fleet.state import FleetState
from services.log import bases, checkpoint
from services.log.checkpoint import Checkpoint
from services.log.connect import Connection
from services.log.documents import fold, read_documents
from services.log.history import Bounds, bounds, message_at, read_range
from services.log.message import Unavailable
from services.log.stored import Stored

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class NotKept(Struct, frozen=True):
    """The state that was asked for can no longer be put together."""

    first: int
    """The lowest sequence whose state can."""
    first_stamp: float
    """When LOG stored that, in seconds since 1970; 0.0: not known."""
    parent: LogId | None = None
    """The log that was lost: LOG begins with a recovery from it."""


async def state_at(connection: Connection, sequence: int) -> FleetState | NotKept:
    """As it was once LOG's message `sequence` had been folded."""
    found = await bounds(connection)
    kept = await bases.usable(connection)
    for each in kept:
        if each.sequence <= sequence and joins(each.sequence, sequence, found):
            documents = await _documents(connection, each)
            if documents is not None:
                return await _from(connection, documents, each.sequence, sequence)
    whole = await bases.begins_whole(connection, found.first)
    if whole and sequence >= found.first:
        return await _from(connection, [], found.first - 1, sequence)
    if whole:
        return await _before(connection, kept, found)
    documents, state = await read_documents(connection)
    if state.sequence <= sequence:
        return await _from(connection, documents, state.sequence, sequence)
    return await _not_kept(connection, kept, found, state.sequence)


def joins(base: int, sequence: int, found: Bounds) -> bool:
    """Whether LOG holds all that lies between."""
    return base == sequence or base + 1 >= found.first


async def _documents(connection: Connection, about: Checkpoint) -> list[Stored] | None:
    try:
        return await checkpoint.read(connection, about)
    except ValueError as error:
        log.warning("checkpoint.unusable", sequence=about.sequence, reason=str(error))
        return None


async def _from(
    connection: Connection, documents: list[Stored], base: int, sequence: int
) -> FleetState:
    state = FleetState()
    await fold(state, documents)
    expected = base + 1
    async for batch in read_range(connection, expected, sequence):
        if batch[-1].sequence != expected + len(batch) - 1:
            raise Unavailable(f"LOG does not hold all of {expected} to {batch[-1].sequence}")
        expected = batch[-1].sequence + 1
        await fold(state, batch)
    return state


async def _before(connection: Connection, kept: list[Checkpoint], found: Bounds) -> NotKept:
    """Of a LOG that is whole."""
    for each in reversed(kept):
        if each.sequence < found.first and joins(each.sequence, found.first, found):
            return NotKept(each.sequence, codec.seconds(each.at))
    return NotKept(found.first, found.first_stamp, await bases.parent(connection, found.first))


async def _not_kept(
    connection: Connection, kept: list[Checkpoint], found: Bounds, now: int
) -> NotKept:
    """`now`: what STATE stands at."""
    for each in reversed(kept):
        if joins(each.sequence, now, found):
            return NotKept(each.sequence, codec.seconds(each.at))
    stored = await message_at(connection, now)
    return NotKept(now, 0.0 if stored is None else stored.stamp)
