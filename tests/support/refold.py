"""LOG read whole and folded, outside of every program of ours."""

from schemas import codec
from schemas.events import Event
from services.fleet.state import FleetState
from services.log.connect import Connection
from services.log.stored import Stored
from services.log.tail import Tail


async def read_log(url: str, to: int) -> list[tuple[int, str, Event]]:
    """Every event of LOG up to a sequence, by a reader of its own."""
    return [
        (stored.sequence, stored.subject, codec.decode_event(stored.payload))
        for stored in await raw_log(url, to)
    ]


async def raw_log(url: str, to: int) -> list[Stored]:
    """Every message of LOG up to a sequence, readable or not."""
    connection = Connection(url, "reader")
    await connection.start()
    await connection.wait_connected()
    found: list[Stored] = []
    try:
        async for batch in Tail(connection, 0).batches():
            found += [stored for stored in batch if stored.sequence <= to]
            if batch[-1].sequence >= to:
                break
    finally:
        await connection.close()
    return found


def dump_of(events: list[tuple[int, str, Event]]) -> bytes:
    """The state that these events make."""
    state = FleetState()
    for sequence, subject, event in events:
        state.apply(sequence, subject, codec.encode(event))
    return state.dump()


async def fold_log(url: str, to: int) -> bytes:
    """The dump of the state at LOG sequence `to`."""
    state = FleetState()
    for stored in await raw_log(url, to):
        state.apply(stored.sequence, stored.subject, stored.payload)
    return state.dump()
