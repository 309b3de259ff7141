"""Where a fold of LOG may begin: at its first message, or at a checkpoint of its own.

A recovery begins a new log whose sequences go on above its parent's: a parent's checkpoints hold for
what lies below that genesis, and no others are of this log.

How it fails: NATS away: Unavailable.
"""

from schemas import subjects
from schemas.documents import Genesis
from schemas.ids import LogId
from services.fleet.reading import Read, read
from services.log import checkpoint
from services.log.checkpoint import Checkpoint
from services.log.connect import Connection
from services.log.history import message_at
from services.log.snapshot import get, read_history
from services.log.stored import Stored

_ALL = 1 << 63


async def usable(connection: Connection) -> list[Checkpoint]:
    """Checkpoints of the log at hand, and of those that it goes on from; highest sequence first."""
    limits = await _lineage(connection)
    found = await checkpoint.complete(connection)
    return [each for each in found if each.sequence < limits.get(each.log, 0)]


async def _lineage(connection: Connection) -> dict[LogId, int]:
    """Ids of this log and its parents, and below which sequence each of them was the log."""
    found = await read_history(connection, subjects.GENESIS, _ALL)
    if not found and (kept := await get(connection, subjects.GENESIS)) is not None:
        found = [kept]  # LOG's age has taken it.
    limits: dict[LogId, int] = {}
    for stored in reversed(found):
        genesis = _genesis(stored)
        if genesis is not None:
            limits.setdefault(genesis.log_id, _ALL)
            for earlier in (genesis.parent, *genesis.ancestors):
                if earlier is not None:
                    limits.setdefault(earlier, stored.sequence)
    return limits


async def begins_whole(connection: Connection, first: int) -> bool:
    """Whether folding LOG from its first message misses nothing."""
    return first <= 1 or await parent(connection, first) is not None  # It voids what was before.


async def parent(connection: Connection, first: int) -> LogId | None:
    """The lost log that a recovery, standing there, goes on from; None: no recovery stands there."""
    stored = await message_at(connection, first)
    genesis = None if stored is None else _genesis(stored)
    return None if genesis is None else genesis.parent


def _genesis(stored: Stored) -> Genesis | None:
    if stored.subject != subjects.GENESIS:
        return None
    match read(stored.subject, stored.payload, Genesis):
        case Read(document=genesis):
            return genesis
        case _:
            return None
