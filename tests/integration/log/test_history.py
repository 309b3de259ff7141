"""Parts of LOG read back, and the state as it was, from a real server."""

import pytest

from schemas import subjects
from schemas.ids import LogId
from services.fleet.state import FleetState
from services.log.api import call
from services.log.connect import Connection
from services.log.history import bounds, read_range, sequence_at
from services.log.message import Unavailable
from services.log.stored import Stored
from services.log.streams import LogMissing, StreamInfo
from tests.builders import a_genesis, a_node, a_verdict, an_event
from tests.support.proxy import Proxy, up_to

LOG_ID = LogId("1234567890abcdef1234567890abcdef")


async def put(log: Connection, subject: str, document: object, number: int) -> None:
    payload = an_event(document, id_=f"event-{number}", log=LOG_ID)
    await log.request(subject, payload, 5.0)


async def a_history(log: Connection, events: int = 60) -> list[tuple[int, str, bytes]]:
    """Documents that replace one another, happenings between them; and a model of it."""
    await put(log, subjects.GENESIS, a_genesis(LOG_ID), 1)
    for number in range(2, events + 1):
        node = f"node-{number % 5}"
        match number % 3:
            case 0:
                await put(log, subjects.node_info(a_node(node).node), a_node(node), number)
            case 1:
                await put(log, subjects.node_verdict(a_node(node).node), a_verdict(node), number)
            case _:
                await put(log, subjects.command("cordon"), {"node": node}, number)
    return [(s.sequence, s.subject, s.payload) for s in await every(log, 1)]


async def every(log: Connection, first: int, last: int | None = None, *of: str) -> list[Stored]:
    return [stored async for batch in read_range(log, first, last, of) for stored in batch]


def dump_at(history: list[tuple[int, str, bytes]], sequence: int) -> bytes:
    state = FleetState()
    for stored in history:
        if stored[0] <= sequence:
            state.apply(*stored)
    return state.dump()


async def age_away(log: Connection, below: int) -> None:
    """As LOG's age would have it: its first messages are gone, its sequences are not."""
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
    left = (await bounds(log)).last - below + 1
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", config | {"max_msgs": left}, StreamInfo)


async def test_a_range_has_every_message_from_its_first_to_its_last(log: Connection) -> None:
    await a_history(log)
    assert [s.sequence for s in await every(log, 7, 41)] == list(range(7, 42))
    assert [s.sequence for s in await every(log, 58)] == [58, 59, 60]
    assert [s.sequence for s in await every(log, 58, 1000)] == [58, 59, 60]
    assert await every(log, 61) == []
    assert await every(log, 9, 8) == []


async def test_a_range_of_some_subjects_has_all_of_theirs(log: Connection) -> None:
    history = await a_history(log)
    verdicts = await every(log, 1, 50, "flotilla.log.s.node.*.verdict", "flotilla.log.e.command.>")
    wanted = [h for h in history if h[0] <= 50 and ("verdict" in h[1] or "command" in h[1])]
    assert [(s.sequence, s.subject, s.payload) for s in verdicts] == wanted
    assert await every(log, 1, None, "flotilla.log.s.node.elsewhere.>") == []


async def test_a_range_goes_on_where_its_consumer_was_lost(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.pull.BATCH", 20)
    await a_history(log)
    proxy.drop = up_to(1, lambda frame: b"event-33" in frame.body)
    assert [s.sequence for s in await every(lossy, 1)] == list(range(1, 61))


async def test_a_range_that_cannot_be_read_to_its_end_says_so(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    await a_history(log)
    proxy.drop = lambda frame: b"event-33" in frame.body
    with pytest.raises(Unavailable):
        await every(lossy, 1)


async def test_without_a_log_there_is_no_history(connection: Connection) -> None:
    for asked in (bounds(connection), sequence_at(connection, 0.0)):
        with pytest.raises(LogMissing):
            await asked


async def test_the_ends_of_the_log_and_their_times(log: Connection) -> None:
    empty = await bounds(log)
    assert (empty.first, empty.last, empty.first_stamp) == (1, 0, 0.0)
    await a_history(log)
    stored = await every(log, 1)
    await age_away(log, 11)
    found = await bounds(log)
    assert (found.first, found.last) == (11, 60)
    assert found.first_stamp == pytest.approx(stored[10].stamp, abs=1e-5)
    assert found.last_stamp == pytest.approx(stored[59].stamp, abs=1e-5)


async def test_a_time_is_the_last_sequence_stored_by_then(log: Connection) -> None:
    assert await sequence_at(log, 0.0) == 0
    await a_history(log, 20)
    for stored in await every(log, 1):
        assert await sequence_at(log, stored.stamp) == stored.sequence
        assert await sequence_at(log, stored.stamp - 5e-6) == stored.sequence - 1
    assert await sequence_at(log, 4e9) == 20
