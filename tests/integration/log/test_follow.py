"""Documents that are pushed, over everything that can go wrong on the way."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

import pytest

from schemas import subjects
from services.log import streams
from services.log.connect import Connection
from services.log.follow import Follower
from services.log.stored import Stored
from tests.support.events import an_event, value_of
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy, up_to
from tests.support.waiting import until

CATALOG = "flotilla.log.s.catalog"
ENDPOINTS = "flotilla.log.s.endpoints.{}.00"
PATTERNS = (CATALOG, "flotilla.log.s.endpoints.>")


class Table:
    """A catalog names models; each model's endpoints are wanted. Keeps all that was applied."""

    def __init__(self, connection: Connection) -> None:
        self.documents: dict[str, Stored] = {}
        self.calls: list[Stored] = []
        self.follower = Follower(connection, PATTERNS, self.wanted, self.apply)

    def wanted(self) -> Iterable[str]:
        catalog = self.documents.get(CATALOG)
        models = () if catalog is None else cast(list[str], value_of(catalog.payload))
        return [CATALOG, *(ENDPOINTS.format(model) for model in models)]

    def apply(self, stored: Stored) -> None:
        before = self.documents.get(stored.subject)
        assert before is None or before.sequence < stored.sequence
        self.documents[stored.subject] = stored
        self.calls.append(stored)

    def value(self, subject: str) -> object:
        stored = self.documents.get(subject)
        return None if stored is None else value_of(stored.payload)


@asynccontextmanager
async def following(connection: Connection) -> AsyncGenerator[Table]:
    table = Table(connection)
    running = asyncio.ensure_future(table.follower.run())
    try:
        yield table
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def reached(table: Table, sequence: int) -> bool:
    return table.follower.applied >= sequence


async def write(connection: Connection, subject: str, value: object) -> int:
    event = an_event(subject, value)
    answer = await connection.request(subject, event.payload, 5.0)
    return int(answer.payload.split(b'"seq":')[1].rstrip(b"}"))


async def test_applies_what_stood_there_and_what_comes(log: Connection) -> None:
    await write(log, ENDPOINTS.format("m"), 1)
    await write(log, ENDPOINTS.format("other"), 1)
    await write(log, CATALOG, ["m"])
    async with following(log) as table:
        await until(lambda: table.follower.synced)
        assert {stored.sequence for stored in table.calls} == {1, 3}
        assert table.follower.applied == 3
        sequence = await write(log, ENDPOINTS.format("m"), 2)
        await until(lambda: table.follower.applied == sequence)
        assert table.value(ENDPOINTS.format("m")) == 2
        assert table.follower.resyncs == 1


async def test_gets_what_a_pushed_document_makes_wanted(log: Connection) -> None:
    """Also if it was written before anything was followed. It has come so far only then."""
    await write(log, ENDPOINTS.format("old"), "old")
    async with following(log) as table:
        await until(lambda: table.follower.synced)
        assert table.value(ENDPOINTS.format("old")) is None
        sequence = await write(log, CATALOG, ["old", "nowhere"])
        await until(lambda: table.follower.applied == sequence)
        assert table.value(ENDPOINTS.format("old")) == "old"
        assert table.value(ENDPOINTS.format("nowhere")) is None


async def test_what_was_wanted_once_and_changed_unseen_is_read_when_wanted_again(
    nats: NatsServer, log: Connection
) -> None:
    model = ENDPOINTS.format("m")
    await write(log, model, 1)
    await write(log, CATALOG, ["m"])
    other = Connection(nats.url, "other")
    await other.start()
    async with following(other) as table:
        await until(lambda: table.value(model) == 1)
        await write(log, CATALOG, [])
        await until(lambda: table.value(CATALOG) == [])
        await other.close()
        await write(log, model, 2)
        await other.start()
        await until(lambda: table.follower.resyncs == 2)
        assert table.value(model) == 1
        await write(log, CATALOG, ["m"])
        await until(lambda: table.value(model) == 2)
    await other.close()


async def test_waits_for_nats_and_for_the_log(nats: NatsServer, connection: Connection) -> None:
    nats.kill()
    await until(lambda: not connection.connected)
    async with following(connection) as table:
        nats.start()
        await connection.wait_connected()
        assert not table.follower.synced
        await streams.create(connection)
        await until(lambda: table.follower.synced)
        await write(connection, CATALOG, [])
        await until(lambda: table.value(CATALOG) == [])


async def test_reads_all_again_over_a_new_link(nats: NatsServer, log: Connection) -> None:
    # spec: T9
    writer = Connection(nats.url, "writer")
    await writer.start()
    await writer.wait_connected()
    async with following(log) as table:
        await until(lambda: table.follower.synced)
        for round_ in range(1, 4):
            nats.kill()
            await until(lambda: not log.connected)
            assert not table.follower.synced
            nats.start()
            await writer.wait_connected()
            sequence = await write(writer, CATALOG, [str(round_)])
            await until(partial(reached, table, sequence))
            assert table.value(CATALOG) == [str(round_)]
        await until(lambda: table.follower.synced)
    await writer.close()


async def test_a_lost_push_is_noticed_by_the_next_one(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    # spec: T11
    await write(log, CATALOG, ["a", "b"])
    async with following(lossy) as table:
        await until(lambda: table.follower.synced)
        proxy.drop = up_to(2, lambda frame: frame.subject.startswith("flotilla.live.s.endpoints."))
        await write(log, ENDPOINTS.format("a"), 1)
        await write(log, ENDPOINTS.format("b"), 1)
        await until(lambda: len(proxy.dropped) == 2)
        assert table.value(ENDPOINTS.format("a")) is None
        await write(log, ENDPOINTS.format("a"), 2)
        await until(lambda: table.value(ENDPOINTS.format("b")) == 1)
        await until(lambda: table.value(ENDPOINTS.format("a")) == 2)
        assert table.follower.resyncs == 2


async def test_a_lost_last_push_comes_with_a_resync(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    # spec: T11
    await write(log, CATALOG, [])
    async with following(lossy) as table:
        await until(lambda: table.follower.synced)
        proxy.drop = up_to(1, lambda frame: frame.subject.startswith("flotilla.live."))
        sequence = await write(log, CATALOG, ["m"])
        await until(lambda: proxy.dropped)
        assert table.value(CATALOG) == []
        assert table.follower.applied < sequence
        table.follower.resync()
        await until(lambda: table.follower.applied >= sequence)
        assert table.value(CATALOG) == ["m"]


async def test_a_get_that_is_not_answered_is_asked_again(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.snapshot.GET_TIMEOUT_SECONDS", 0.2)
    await write(log, CATALOG, ["m"])
    proxy.drop = up_to(3, lambda frame: b"Nats-Stream: FLOTILLA_LOG" in frame.body)
    async with following(lossy) as table:
        await until(lambda: table.follower.synced)
    assert len(proxy.dropped) == 3
    assert table.value(CATALOG) == ["m"]


async def test_never_claims_what_it_has_not_applied(nats: NatsServer, log: Connection) -> None:
    # spec: R7
    models = [f"m{number}" for number in range(20)]
    written: dict[int, str] = {}
    stop = asyncio.Event()

    async def check(table: Table) -> None:
        while not stop.is_set():
            reached = table.follower.applied
            for sequence, subject in written.items():
                if sequence <= reached:
                    held = table.documents.get(subject)
                    assert held is not None
                    assert held.sequence >= sequence
            await asyncio.sleep(0)

    async with following(log) as table, asyncio.TaskGroup() as group:
        await write(log, CATALOG, models)
        await until(lambda: table.value(CATALOG) == models)
        group.create_task(check(table))
        for number in range(40):
            writes = [write(log, ENDPOINTS.format(model), number) for model in models]
            writes += [write(log, CATALOG, models) for _ in range(3)]
            names = [*map(ENDPOINTS.format, models), CATALOG, CATALOG, CATALOG]
            written.update(zip(await asyncio.gather(*writes), names, strict=True))
            if number == 20:
                table.follower.resync()
        last = max(written)
        await until(lambda: table.follower.applied >= last)
        stop.set()


async def test_patterns_outside_the_followed_ones_do_not_come(log: Connection) -> None:
    async with following(log) as table:
        await until(lambda: table.follower.synced)
        await write(log, subjects.GENESIS, 1)
        sequence = await write(log, CATALOG, [])
        await until(lambda: table.follower.applied == sequence)
        assert [stored.subject for stored in table.calls] == [CATALOG]


async def test_leaves_nothing_behind_on_the_connection(log: Connection) -> None:
    before = len(log.on_change)
    async with following(log) as table:
        await until(lambda: table.follower.synced)
    assert len(log.on_change) == before
    await write(log, CATALOG, [])
    await log.barrier()
    assert not table.calls
