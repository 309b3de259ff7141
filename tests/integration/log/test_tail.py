"""The whole of LOG, once and in order, whatever happens to links, consumers and servers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from schemas import codec
from services.log import pull, streams
from services.log.api import call
from services.log.connect import Connection
from services.log.snapshot import get_from_log
from services.log.stored import Stored
from services.log.streams import LogMissing, LogRewound
from services.log.tail import Tail
from tests.support.events import an_event
from tests.support.nats_server import NatsServer
from tests.support.proxy import Frame, Proxy, up_to
from tests.support.waiting import until

SUBJECT = "flotilla.log.s.assignment.n{}"


class Reader:
    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.got: list[Stored] = []
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for batch in self.tail.batches():
            assert batch
            self.got += batch

    @property
    def sequences(self) -> list[int]:
        return [stored.sequence for stored in self.got]


@asynccontextmanager
async def reading(
    connection: Connection, after: int = 0, filter_: str | None = None
) -> AsyncGenerator[Reader]:
    reader = Reader(Tail(connection, after, filter_))
    try:
        yield reader
    finally:
        reader.task.cancel()
        await asyncio.wait([reader.task])


async def write(connection: Connection, count: int) -> None:
    for number in range(count):
        event = an_event(SUBJECT.format(number % 10), number)
        await connection.request(event.subject, event.payload, 5.0)


def until_read(reader: Reader, last: int) -> Callable[[], bool]:
    def read() -> bool:
        if reader.task.done():
            reader.task.result()
        return reader.tail.sequence >= last

    return read


async def test_reads_what_stood_there_and_what_comes(log: Connection) -> None:
    await write(log, 30)
    async with reading(log, after=10) as reader:
        await until(until_read(reader, 30))
        await write(log, 5)
        await until(until_read(reader, 35))
    assert reader.sequences == list(range(11, 36))
    assert reader.got[0].subject == SUBJECT.format(0)
    assert reader.tail.pending == 0
    assert reader.tail.rebuilds == 0


async def test_says_when_each_was_stored(log: Connection) -> None:
    await write(log, 1)
    async with reading(log) as reader:
        await until(until_read(reader, 1))
    newest = await streams.newest(log)
    assert reader.got[0].stamp == pytest.approx(newest.stamp, abs=1e-5)


async def test_reads_more_than_one_request_for_messages_brings(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "BATCH", 7)
    await write(log, 50)
    async with reading(log) as reader:
        await until(until_read(reader, 50))
    assert reader.sequences == list(range(1, 51))
    assert reader.tail.rebuilds == 0


async def test_goes_on_when_a_request_for_messages_expires(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "EXPIRES_SECONDS", 1.5)
    monkeypatch.setattr(pull, "BEAT_SECONDS", 0.5)
    async with reading(log) as reader:
        await asyncio.sleep(
            2.0
        )  # Nothing says that it has expired; later ones must come all the same.
        await write(log, 3)
        await until(until_read(reader, 3))
    assert reader.tail.rebuilds == 0


async def test_can_read_some_subjects_only(log: Connection) -> None:
    await write(log, 25)
    async with reading(log, filter_=SUBJECT.format(3)) as reader:
        await until(until_read(reader, 24))
    assert reader.sequences == [4, 14, 24]


async def test_another_consumer_goes_on_where_a_deleted_one_ended(log: Connection) -> None:
    async with reading(log) as reader:
        for read in (10, 20, 30):
            await write(log, 10)
            await until(until_read(reader, read))
            await delete_consumers(log)
        await write(log, 10)
        await until(until_read(reader, 40))
    assert reader.sequences == list(range(1, 41))
    assert reader.tail.rebuilds == 3


@pytest.mark.parametrize("end", [NatsServer.kill, NatsServer.stop])
async def test_loses_and_repeats_nothing_over_restarts_of_the_server(
    nats: NatsServer,
    log: Connection,
    end: Callable[[NatsServer], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # spec: L4
    monkeypatch.setattr(pull, "SILENCE_SECONDS", 600.0)  # A lost link is noticed by itself.
    async with reading(log) as reader:
        for read in (20, 40, 60):
            await write(log, 20)
            end(nats)
            await until(lambda: not log.connected)
            nats.start()
            await log.wait_connected()
            await until(until_read(reader, read))
    assert reader.sequences == list(range(1, 61))


async def test_a_lost_message_is_read_again(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    async with reading(lossy) as reader:
        await write(log, 5)
        await until(until_read(reader, 5))
        proxy.drop = up_to(1, delivered)
        await write(log, 5)
        await until(until_read(reader, 10))
    assert len(proxy.dropped) == 1
    assert reader.sequences == list(range(1, 11))
    assert reader.tail.rebuilds == 1


async def test_a_lost_last_message_is_noticed_by_the_next_beat(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    async with reading(lossy) as reader:
        await write(log, 5)
        await until(until_read(reader, 5))
        proxy.drop = up_to(1, delivered)
        await write(log, 1)
        await until(until_read(reader, 6))
    assert len(proxy.dropped) == 1
    assert reader.sequences == list(range(1, 7))


async def test_silence_is_not_believed(log: Connection, lossy: Connection, proxy: Proxy) -> None:
    silence = [True]
    async with reading(lossy) as reader:
        await write(log, 5)
        await until(until_read(reader, 5))
        proxy.drop = lambda frame: bool(silence) and (delivered(frame) or b"Idle" in frame.body)
        await write(log, 5)
        await until(lambda: reader.tail.rebuilds > 0)
        silence.clear()
        await until(until_read(reader, 10))
    assert reader.sequences == list(range(1, 11))


async def test_waits_while_nats_is_away(nats: NatsServer, log: Connection) -> None:
    nats.kill()
    await until(lambda: not log.connected)
    async with reading(log) as reader:
        nats.start()
        await log.wait_connected()
        await write(log, 1)
        await until(until_read(reader, 1))


async def test_a_deleted_log_is_damage(log: Connection) -> None:
    async with reading(log) as reader:
        await write(log, 5)
        await until(until_read(reader, 5))
        await log.request("$JS.API.STREAM.DELETE.FLOTILLA_LOG", b"", 5.0)
        await until(reader.task.done)
    assert isinstance(reader.task.exception(), LogMissing)


async def test_a_log_that_ends_below_what_was_read_is_damage(log: Connection) -> None:
    await write(log, 3)
    async with reading(log, after=5) as reader:
        await until(reader.task.done)
    error = reader.task.exception()
    assert isinstance(error, LogRewound)
    assert (error.newest, error.applied) == (3, 5)


async def test_leaves_nothing_behind_on_the_connection(log: Connection) -> None:
    before = len(log.on_change)
    async with reading(log) as reader:
        await write(log, 1)
        await until(until_read(reader, 1))
        assert len(log.on_change) == before + 1
    assert len(log.on_change) == before


def delivered(frame: Frame) -> bool:
    """A message that a consumer sends."""
    return frame.reply.startswith("$JS.ACK.")


async def consumers(connection: Connection) -> list[str]:
    answer = await connection.request("$JS.API.CONSUMER.NAMES.FLOTILLA_LOG", b"", 5.0)
    names = codec.decode(answer.payload, dict[str, object])["consumers"]
    return cast(list[str], names)


async def delete_consumers(connection: Connection) -> None:
    for name in await consumers(connection):
        await connection.request(f"$JS.API.CONSUMER.DELETE.FLOTILLA_LOG.{name}", b"", 5.0)


async def test_is_caught_up_once_all_that_stood_there_was_read(log: Connection) -> None:
    await write(log, 30)
    async with reading(log, after=10) as reader:
        assert not reader.tail.caught_up.is_set()
        async with asyncio.timeout(30):
            await reader.tail.caught_up.wait()
        assert reader.sequences == list(range(11, 31))


async def test_is_caught_up_where_age_took_the_last_messages(log: Connection) -> None:
    await write(log, 5)
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    aged = config | {"max_age": 100_000_000, "duplicate_window": 100_000_000}
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", aged, streams.StreamInfo)
    async with asyncio.timeout(30):
        while await get_from_log(log, SUBJECT.format(0)) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    async with reading(log, after=3) as reader, asyncio.timeout(30):
        await reader.tail.caught_up.wait()
    assert reader.got == []


async def test_goes_on_with_the_first_that_is_left_where_age_took_what_comes_next(
    log: Connection,
) -> None:
    await write(log, 5)
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    few = config | {"max_msgs": 2}
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", few, streams.StreamInfo)
    async with reading(log, after=1) as reader:
        await until(until_read(reader, 5))
    assert reader.sequences == [4, 5]
