"""Documents read back: one, or all of STATE while it is being written to."""

import asyncio
import random
import re
from collections.abc import Callable

import pytest
from msgspec import Struct

from schemas import subjects
from services.log import bulk, pull, streams
from services.log.api import call
from services.log.connect import Connection
from services.log.history import read_range
from services.log.message import Unavailable
from services.log.snapshot import get, get_from_log, read_history, read_state
from services.log.stored import Stored
from services.log.tail import Tail
from tests.support.events import an_event, value_of
from tests.support.nats_server import NatsServer
from tests.support.proxy import Frame, Proxy, up_to
from tests.support.waiting import eventually

SUBJECT = "flotilla.log.s.assignment.n{}"


async def write(connection: Connection, subject: str, value: object = None) -> None:
    event = an_event(subject, value)
    await connection.request(subject, event.payload, 5.0)


async def state_holds(connection: Connection, sequence: int) -> None:
    """Returns once the server has fed STATE that far."""
    async with asyncio.timeout(30):
        while (await read_state(connection))[1] < sequence:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_document_comes_from_the_log_with_its_place_and_time(log: Connection) -> None:
    await write(log, SUBJECT.format(1), "old")
    await write(log, SUBJECT.format(1), "new")
    stored = await get(log, SUBJECT.format(1))
    assert stored is not None
    assert (stored.sequence, value_of(stored.payload)) == (2, "new")
    assert stored.stamp == pytest.approx((await streams.newest(log)).stamp, abs=1e-5)


async def test_a_document_that_nobody_wrote_is_none(log: Connection) -> None:
    await write(log, SUBJECT.format(1))
    assert await get(log, SUBJECT.format(2)) is None


async def test_a_document_that_age_has_removed_comes_from_state(log: Connection) -> None:
    await write(log, subjects.GENESIS)
    await write(log, SUBJECT.format(1), "kept")
    await state_holds(log, 2)
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    aged = config | {"max_age": 100_000_000, "duplicate_window": 100_000_000}
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", aged, streams.StreamInfo)
    async with asyncio.timeout(30):
        while await get_from_log(log, SUBJECT.format(1)) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    stored = await get(log, SUBJECT.format(1))
    assert stored is not None
    assert (stored.sequence, value_of(stored.payload), stored.stamp) == (2, "kept", 0.0)


async def test_nats_away_is_never_none(
    nats: NatsServer,
    log: Connection,
    lossy: Connection,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.log.snapshot.GET_TIMEOUT_SECONDS", 0.2)
    await write(log, SUBJECT.format(1))
    proxy.drop = up_to(1, lambda frame: b"404" in frame.body)
    with pytest.raises(Unavailable):
        await get(lossy, SUBJECT.format(2))
    nats.kill()
    with pytest.raises(Unavailable):
        await get(log, SUBJECT.format(2))
    with pytest.raises(Unavailable):
        await read_state(log)


async def test_a_missing_stream_is_never_none(connection: Connection) -> None:
    with pytest.raises(Unavailable):
        await get(connection, SUBJECT.format(1))
    with pytest.raises(Unavailable, match="FLOTILLA_STATE"):
        await read_state(connection)


async def test_an_empty_state_ends_at_zero(log: Connection) -> None:
    await write(log, "flotilla.log.e.command.apply")
    assert await read_state(log) == ([], 0)


async def test_state_is_the_last_document_of_each_subject(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 7)  # So that it takes several requests.
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 100)  # And cuts every message.
    for value in range(3):
        for number in range(20):
            await write(log, SUBJECT.format(number), value)
    await state_holds(log, 60)
    documents, newest = await read_state(log)
    assert newest == 60
    assert {stored.subject: value_of(stored.payload) for stored in documents} == {
        SUBJECT.format(number): 2 for number in range(20)
    }
    assert [stored.sequence for stored in documents] == list(range(41, 61))


async def test_state_and_tail_miss_nothing_under_a_busy_writer(log: Connection) -> None:
    # spec: L4
    stop = asyncio.Event()
    source = random.Random(7)

    async def write_on() -> None:
        while not stop.is_set():
            numbers = [source.randrange(60) for _ in range(20)]
            await asyncio.gather(*(write(log, SUBJECT.format(number)) for number in numbers))

    async with asyncio.TaskGroup() as group:
        group.create_task(write_on())
        snapshots = [await read_state(log) for _ in range(8)]
        stop.set()
    mark = await mark_end(log)
    truth = await read_to(log, 0, mark)
    for documents, newest in snapshots:
        rebuilt = last_of_each([*documents, *(s for s in truth if s.sequence > newest)])
        assert rebuilt == last_of_each(truth)


async def test_state_that_is_not_read_to_its_end_is_not_returned(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    for number in range(20):
        await write(log, SUBJECT.format(number))
    await state_holds(log, 20)
    proxy.drop = up_to(1, lambda frame: frame.reply.endswith(".0"))
    with pytest.raises(Unavailable, match="not read to its end"):
        await read_state(lossy)
    assert len((await read_state(lossy))[0]) == 20


async def mark_end(connection: Connection) -> int:
    await write(connection, "flotilla.log.e.command.mark")
    return await streams.head(connection)


async def read_to(connection: Connection, after: int, last: int) -> list[Stored]:
    found: list[Stored] = []
    async for batch in Tail(connection, after).batches():
        found += [stored for stored in batch if stored.sequence < last]
        if batch[-1].sequence >= last:
            break
    return found


def last_of_each(documents: list[Stored]) -> dict[str, int]:
    found: dict[str, int] = {}
    for stored in documents:
        found[stored.subject] = max(stored.sequence, found.get(stored.subject, 0))
    return found


async def test_a_read_that_expires_before_the_end_is_never_a_part_of_state(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await write(log, SUBJECT.format(number))
    await state_holds(log, 20)
    monkeypatch.setattr(pull, "EXPIRES_SECONDS", 0.5)
    monkeypatch.setattr(pull, "BEAT_SECONDS", 0.2)
    proxy.drop = lambda frame: "$JS.ACK" in frame.reply or b"NATS/1.0 100" in frame.body
    with pytest.raises(Unavailable, match="20 messages are missing"):
        await read_state(lossy)


async def test_the_past_of_a_subject_is_read_oldest_first(log: Connection) -> None:
    for value in range(5):
        await write(log, SUBJECT.format(1), value)
        await write(log, SUBJECT.format(2), "other")
    past = await read_history(log, SUBJECT.format(1), 7)
    assert [(stored.sequence, value_of(stored.payload)) for stored in past] == [
        (1, 0),
        (3, 1),
        (5, 2),
    ]
    assert await read_history(log, SUBJECT.format(3), 100) == []


class _Names(Struct):
    total: int


async def consumers(connection: Connection) -> int:
    """Of all streams of the log."""
    verbs = [f"CONSUMER.NAMES.{name}" for name in (subjects.LOG, subjects.STATE)]
    return sum([(await call(connection, verb, {}, _Names)).total for verb in verbs])


async def test_no_consumer_outlives_its_reader(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    for number in range(50):
        await write(log, SUBJECT.format(number % 5))
    await state_holds(log, 50)
    for _ in range(10):
        await read_state(log)
        await read_history(log, SUBJECT.format(1), 50)
        async for _ in read_range(log, 1, 20):
            break
    following = asyncio.ensure_future(anext(Tail(log, 50).batches()))
    await eventually(lambda: consumers(log), "a consumer is there")
    following.cancel()
    proxy.drop = up_to(1, lambda frame: "$JS.ACK" in frame.reply)
    with pytest.raises(Unavailable, match="a message was lost"):
        await read_state(lossy)

    async def none_is_left() -> bool:
        return await consumers(log) == 0

    # The server would remove abandoned ones after 30 s.
    await eventually(none_is_left, "no consumer is left", cap_seconds=15)


def claims(count: bytes, times: int) -> Callable[[Frame], bytes | None]:
    """Answers that make a consumer, the first `times` of them, say that it has so many messages."""
    left = [b"NATS/1.0\r\n\r\n"] * times

    def change(frame: Frame) -> bytes | None:
        made = b"consumer_create_response" in frame.body
        return (
            left.pop() + re.sub(rb'("num_pending":)\d+', rb"\g<1>" + count, frame.body)
            if made and left
            else None
        )

    return change


@pytest.mark.parametrize("times", [1, 2])
async def test_messages_that_are_counted_and_do_not_come_are_counted_anew(
    lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(pull, "BEAT_SECONDS", 0.2)
    proxy.change = claims(b"7", times)
    assert await read_state(lossy) == ([], 0)
    proxy.change = claims(b"7", times)
    assert await read_history(lossy, SUBJECT.format(1), 50) == []


async def test_a_server_that_never_stops_counting_what_is_not_there_is_unavailable(
    lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "BEAT_SECONDS", 0.2)
    proxy.change = claims(b"7", 9)
    with pytest.raises(Unavailable, match="7 messages should be there and do not come"):
        await read_state(lossy)
    with pytest.raises(Unavailable, match="7 messages should be there and do not come"):
        await read_history(lossy, SUBJECT.format(1), 50)
