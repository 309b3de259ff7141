"""Makes room for a new log where one was lost, and reads what is left of the old one.

Only a recovery does either. LOG is made anew with sequences above all that anybody has seen, so that
they rise across the recovery as well, and STATE, if it still stands, goes on being fed. Where a LOG
stands that ends below STATE, STATE is deleted and made anew: it would take nothing in until LOG had
caught up.

How it fails:
- NATS away, or an answer that does not come: Unavailable. What was made stands, and it may be called again.
- The server makes no stream: LogDamaged with its words. It lets this user delete none: Denied.
"""

from msgspec import Struct

from schemas import subjects
from services.fleet.state import FleetState
from services.log import api, streams
from services.log.connect import Connection
from services.log.history import bounds, read_range
from services.log.snapshot import get_from_log, read_history, read_state
from services.log.stored import Stored
from services.log.streams import LogDamaged


async def what_is_left(connection: Connection, below: int | None = None) -> FleetState:
    """What LOG and STATE still tell together, of what stands below a LOG sequence; None: of all."""
    found, newest = await _state(connection)
    if await streams.has(connection, subjects.LOG):
        # STATE holds what came before; but not what a later log has written over.
        first, last = (newest + 1, None) if below is None else (1, below - 1)
        found += await read_history(connection, subjects.GENESIS, newest + 1)
        async for batch in read_range(connection, first, last, [subjects.STATE_ROOT + ">"]):
            found += batch
    state = FleetState()
    for stored in sorted(found, key=lambda stored: stored.sequence):
        if below is None or stored.sequence < below:
            state.apply(stored.sequence, stored.subject, stored.payload)
    return state


async def tells_all(connection: Connection) -> bool:
    """Whether STATE can be made from LOG: nothing was ever there, or all is from the genesis on.

    Raises LogMissing, Unavailable.
    """
    found = await bounds(connection)
    if found.first > found.last:
        return True  # It is empty.
    genesis = await get_from_log(connection, subjects.GENESIS)
    return genesis is not None and found.first <= genesis.sequence


async def make_room(connection: Connection, above: int, replicas: int | None) -> list[str]:
    """LOG and STATE stand, and what LOG stores next lies above all that STATE holds.

    `above`: sequences that have been seen. Returns faults, as `streams.create` does.
    """
    _, newest = await _state(connection)
    faults = await streams.create(connection, replicas, first=max(above, newest) + 1)
    if not await streams.exists(connection):
        raise LogDamaged("; ".join(faults))
    if await streams.head(connection) < newest:
        await api.call(connection, f"STREAM.DELETE.{subjects.STATE}", None, Struct)
        faults = await streams.create(connection, replicas)
    return faults


async def _state(connection: Connection) -> tuple[list[Stored], int]:
    if not await streams.has(connection, subjects.STATE):
        return [], 0
    return await read_state(connection)
