"""Documents written by agents and routers: in order, once, newest value last, nobody's overwritten."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import structlog

from schemas import codec
from schemas.documents import Document
from schemas.events import Event
from schemas.ids import EventId, LogId
from services.log.api import call
from services.log.connect import Connection
from services.log.guarded import Refused, Written, write
from services.log.message import Unavailable
from services.log.snapshot import get
from services.log.stored import Stored
from services.log.streams import StreamInfo
from services.log.tail import Tail
from services.log.write import Writer
from tests.support.events import an_event
from tests.support.nats_server import NatsServer
from tests.support.proxy import NOT_FOUND, Proxy, up_to
from tests.support.waiting import until

INFO = "flotilla.log.s.node.n1.info"
SHARD = "flotilla.log.s.node.n1.shard.{}"


class Value(Document, frozen=True, kw_only=True):
    """Stands for any document."""

    value: int
    pad: str = ""


def value_of(stored: Stored) -> int:
    return codec.decode(codec.decode_event(stored.payload).data, Value).value


@asynccontextmanager
async def writing(
    connection: Connection, may_replace: Callable[[Stored], bool] = lambda _: True
) -> AsyncGenerator[Writer]:
    writer = Writer(
        connection,
        source="agent/n1",
        log_id=LogId("0123456789abcdef"),
        now=lambda: 1796063777.5,
        may_replace=may_replace,
    )
    running = asyncio.ensure_future(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def history(connection: Connection) -> list[Stored]:
    """All of LOG, up to a mark written now."""
    mark = an_event("flotilla.log.e.command.mark")
    await connection.request(mark.subject, mark.payload, 5.0)
    found: list[Stored] = []
    async for batch in Tail(connection, 0).batches():
        found += batch
        if found[-1].payload == mark.payload:
            return found[:-1]
    raise AssertionError


async def test_the_envelope_says_who_when_and_why(log: Connection) -> None:
    # spec: L1
    async with writing(log) as writer:
        writer.put(INFO, "node.described", Value(value=1), EventId("because"), 7)
        await writer.idle()
    stored = await get(log, INFO)
    assert stored is not None
    event = codec.decode_event(stored.payload)
    assert event == Event(
        id=event.id,
        log="01234567",
        type="node.described",
        at="2026-11-30T18:36:17.500000Z",
        src="agent/n1",
        cause=EventId("because"),
        seen=7,
        data=event.data,
    )
    assert writer.standing(INFO) == stored.sequence == 1


async def test_the_server_knows_each_write_by_the_id_of_its_event(log: Connection) -> None:
    """A cluster tells a repeated write by this, before it looks at what the subject holds."""
    async with writing(log) as writer:
        writer.put(INFO, "node.described", Value(value=1))
        await writer.idle()
    answer = await log.request(f"$JS.API.DIRECT.GET.FLOTILLA_LOG.{INFO}", b"", 5.0)
    assert answer.headers["Nats-Msg-Id"] == codec.decode_event(answer.payload).id


async def test_values_put_meanwhile_are_written_as_the_newest_alone(log: Connection) -> None:
    async with writing(log) as writer:
        for value in range(100):
            writer.put(INFO, "node.described", Value(value=value))
        writer.put(SHARD.format(0), "shard.ready", Value(value=-1))
        await writer.idle()
        assert sorted(value_of(stored) for stored in await history(log)) == [-1, 99]
        writer.put(INFO, "node.described", Value(value=100))
        await log.barrier()  # The writer has taken it up by then.
        writer.put(INFO, "node.described", Value(value=101))
        writer.put(INFO, "node.described", Value(value=102))
        await writer.idle()
    infos = [value_of(stored) for stored in await history(log) if stored.subject == INFO]
    assert infos == [99, 100, 102]


async def test_lost_acks_land_a_value_once(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: L8
    monkeypatch.setattr("services.log.guarded.ACK_SECONDS", 0.2)
    async with writing(lossy) as writer:
        writer.put(INFO, "node.described", Value(value=0))
        await writer.idle()
        proxy.drop = up_to(2, lambda frame: b'"seq":' in frame.body)
        for value in range(1, 6):
            writer.put(INFO, "node.described", Value(value=value))
            writer.put(SHARD.format(value), "shard.ready", Value(value=value))
            await writer.idle()
    assert len(proxy.dropped) == 2
    found = await history(log)
    assert [value_of(stored) for stored in found if stored.subject == INFO] == [0, 1, 2, 3, 4, 5]
    assert len(found) == 11


async def test_writes_once_over_kills_of_the_server(nats: NatsServer, log: Connection) -> None:
    # spec: L6
    async with writing(log) as writer:
        for value in range(60):
            for slot in range(4):
                writer.put(SHARD.format(slot), "shard.loading", Value(value=value))
            if value % 20 == 10:
                nats.kill()
                nats.start()
            await asyncio.sleep(0.005)
        await writer.idle()
    found = await history(log)
    for slot in range(4):
        values = [value_of(each) for each in found if each.subject == SHARD.format(slot)]
        assert values == sorted(set(values))
        assert values[-1] == 59


async def test_values_wait_while_nats_is_away(nats: NatsServer, log: Connection) -> None:
    # spec: A5
    async with writing(log) as writer:
        nats.kill()
        await until(lambda: not log.connected)
        for value in range(10):
            writer.put(INFO, "node.described", Value(value=value))
            await asyncio.sleep(0)
        nats.start()
        await writer.idle()
    found = await history(log)
    assert value_of(found[-1]) == 9
    assert len(found) <= 2


async def test_anothers_document_is_not_written_over(log: Connection) -> None:
    other = an_event(INFO)
    await log.request(INFO, other.payload, 5.0)
    asked: list[Stored] = []

    def refuse(standing: Stored) -> bool:
        asked.append(standing)
        return False

    async with writing(log, refuse) as writer:
        writer.put(INFO, "node.described", Value(value=1))
        await writer.idle()
        assert [stored.payload for stored in asked] == [other.payload]
        writer.put(INFO, "node.described", Value(value=2))
        await writer.idle()
    assert len(asked) == 2
    assert [stored.payload for stored in await history(log)] == [other.payload]


async def test_a_second_machine_under_the_same_name_is_noticed_while_writing(
    log: Connection,
) -> None:
    asked: list[Stored] = []

    def judge(standing: Stored) -> bool:
        asked.append(standing)
        return len(asked) > 1

    other = an_event(INFO)
    async with writing(log, judge) as writer:
        writer.put(INFO, "node.described", Value(value=1))
        await writer.idle()
        await log.request(INFO, other.payload, 5.0)
        writer.put(INFO, "node.described", Value(value=2))
        await writer.idle()
        assert [stored.payload for stored in asked] == [other.payload]
        assert len(await history(log)) == 2
        writer.put(INFO, "node.described", Value(value=3))
        await writer.idle()
    assert value_of((await history(log))[-1]) == 3


async def test_a_document_that_age_has_removed_is_written_anew(log: Connection) -> None:
    async with writing(log) as writer:
        writer.put(INFO, "node.described", Value(value=1))
        await writer.idle()
        config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
        aged = config | {"max_age": 100_000_000, "duplicate_window": 100_000_000}
        await call(log, "STREAM.UPDATE.FLOTILLA_LOG", aged, StreamInfo)

        async def empty() -> bool:
            answer = await log.request("$JS.API.STREAM.INFO.FLOTILLA_LOG", b"", 5.0)
            return b'"messages":0' in answer.payload

        async with asyncio.timeout(30):
            while not await empty():  # noqa: ASYNC110 - the server tells nobody.
                await asyncio.sleep(0.05)
        stored = await get(log, INFO)
        assert stored is not None
        assert (stored.sequence, value_of(stored)) == (1, 1)
        writer.put(INFO, "node.described", Value(value=2))
        await writer.idle()
    assert writer.standing(INFO) == 2


async def test_a_document_no_log_could_take_is_refused_at_once(log: Connection) -> None:
    async with writing(log) as writer:
        with pytest.raises(ValueError, match="too large"):
            writer.put(INFO, "node.described", Value(value=1, pad="x" * 1024 * 1024))
        await writer.idle()


async def test_a_replica_that_lags_makes_no_write_refused_that_had_landed(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: L8
    monkeypatch.setattr("services.log.guarded.ACK_SECONDS", 0.2)
    event = an_event(INFO)
    proxy.drop = up_to(1, lambda frame: b'"seq":' in frame.body)
    with pytest.raises(Unavailable):
        await write(lossy, event, 0)
    proxy.change = lambda frame: NOT_FOUND if b"Nats-Subject" in frame.body else None
    with pytest.raises(Unavailable, match="not to be read yet"):
        await write(lossy, event, 0)
    proxy.change = lambda _: None
    assert await write(lossy, event, 0) == Written(1)
    assert isinstance(await write(lossy, an_event(INFO), 0), Refused)


async def test_a_value_that_the_server_refuses_is_told_and_written_once_it_may_be(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.write.REFUSED_SECONDS", 0.05)
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
    full = config | {"max_bytes": 10, "discard": "new"}
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", full, StreamInfo)
    with structlog.testing.capture_logs() as told:
        async with writing(log) as writer:
            writer.put(INFO, "node.described", Value(value=1))
            await until(lambda: any(line["event"] == "log.write.refused" for line in told))
            assert await get(log, INFO) is None
            await call(log, "STREAM.UPDATE.FLOTILLA_LOG", config, StreamInfo)
            await writer.idle()
    assert [value_of(stored) for stored in await history(log)] == [1]
