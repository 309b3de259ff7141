"""Fold LOG from its first event to a sequence, outside of every program of ours."""

from services.fleet.state import FleetState
from services.log.connect import Connection
from services.log.tail import Tail


async def fold_log(url: str, to: int) -> bytes:
    """The dump of the state at LOG sequence `to`."""
    connection = Connection(url, "refold")
    await connection.start()
    state = FleetState()
    try:
        async for batch in Tail(connection, 0).batches():
            for stored in batch:
                if stored.sequence <= to:
                    state.apply(stored.sequence, stored.subject, stored.payload)
            if batch and batch[-1].sequence >= to:
                return state.dump()
    finally:
        await connection.close()
    raise AssertionError("the tail ended")
