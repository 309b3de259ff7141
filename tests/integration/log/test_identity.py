"""Which log stands there, asked of a real server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import structlog

from schemas import subjects
from schemas.documents import CatalogPointer
from schemas.ids import LogId
from services.fleet.damage import Found, Seen
from services.log import api, identity, streams
from services.log.connect import Connection
from services.log.identity import Trust, look
from services.log.snapshot import get_from_log
from services.log.stored import Stored
from tests.builders import LOG_ID, a_genesis, an_event
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy, up_to
from tests.support.waiting import until

OTHER = LogId("f" * 32)


async def put(connection: Connection, subject: str, payload: bytes) -> int:
    answer = api.pub_ack(await connection.request(subject, payload, 5.0))
    assert answer.error is None
    return answer.seq


async def put_any(connection: Connection) -> int:
    pointer = CatalogPointer(revision=1, hash="x", author="tests")
    return await put(connection, subjects.CATALOG, an_event(pointer))


@asynccontextmanager
async def trusting(connection: Connection, seen: Seen | None) -> AsyncGenerator[Trust]:
    trust = Trust(connection, seen, lambda: None)
    task = asyncio.ensure_future(trust.run())
    try:
        yield trust
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_tells_a_log_that_is_missing_empty_unreadable_or_there(
    connection: Connection, nats: object
) -> None:
    seen = Seen(LOG_ID, 7)
    assert (await look(connection, seen)).missing
    await streams.create(connection)
    assert await look(connection, seen) == Found(None, 0, seen=seen)
    await put(connection, subjects.GENESIS, an_event(a_genesis()))
    assert await look(connection, seen) == Found(a_genesis(), 1, seen=seen, genesis_at=1)
    await put(connection, subjects.GENESIS, b"?")
    assert (await look(connection)).unreadable
    await put(connection, subjects.GENESIS, an_event(a_genesis(), version=2))
    found = await look(connection)
    assert (found.genesis, found.missing) == (None, "")
    assert "v2" in found.unreadable


async def test_what_comes_during_a_look_shortens_no_log(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: L5
    await put(log, subjects.GENESIS, an_event(a_genesis()))
    looks: list[int] = []

    async def slow_get(connection: Connection, subject: str) -> Stored | None:
        trust.note(await put_any(connection))
        looks.append(1)
        return await get_from_log(connection, subject)

    async with trusting(log, None) as trust:
        await until(lambda: trust.fresh)
        monkeypatch.setattr(identity, "get_from_log", slow_get)
        trust.look_again()
        await until(lambda: looks)
        monkeypatch.undo()
        trust.look_again()
        await until(lambda: trust.seen == Seen(LOG_ID, 2))
        assert (trust.log_id, trust.damage) == (LOG_ID, "")


async def test_distrusts_another_log_until_it_names_the_known_one(log: Connection) -> None:
    # spec: L1 L5
    with structlog.testing.capture_logs() as told:
        await put(log, subjects.GENESIS, an_event(a_genesis(OTHER), log=OTHER))
        async with trusting(log, Seen(LOG_ID, 5)) as trust:
            await until(lambda: trust.damage)
            assert (trust.log_id, trust.fresh, trust.seen) == (None, False, Seen(LOG_ID, 5))
            await put(log, subjects.GENESIS, an_event(a_genesis(OTHER, LOG_ID), log=OTHER))
            trust.look_again()
            await until(lambda: trust.fresh)
            assert (trust.log_id, trust.damage) == (OTHER, "")
            assert trust.seen == Seen(OTHER, 2)
    events = [entry["event"] for entry in told if entry["event"].startswith("log.")]
    assert events == ["log.damaged", "log.mended", "log.followed"]


async def test_a_new_link_is_asked_before_it_is_fresh(log: Connection) -> None:  # spec: T9
    await put(log, subjects.GENESIS, an_event(a_genesis()))
    async with trusting(log, None) as trust:
        await until(lambda: trust.fresh)
        log.generation += 1  # As after a reconnect that nobody announced.
        assert not trust.fresh
        assert trust.log_id == LOG_ID
        trust.look_again()
        await until(lambda: trust.fresh)


async def test_nats_away_or_an_answer_that_does_not_come_changes_nothing(
    log: Connection,
    lossy: Connection,
    proxy: Proxy,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # spec: L3
    monkeypatch.setattr("services.log.snapshot.GET_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(identity, "LOOK_SECONDS", 0.05)
    await put(log, subjects.GENESIS, an_event(a_genesis()))
    async with trusting(lossy, None) as trust:
        await until(lambda: trust.fresh)
        proxy.drop = up_to(2, lambda frame: b"Nats-Subject" in frame.body)
        await until(lambda: len(proxy.dropped) == 2)
        assert (trust.log_id, trust.damage) == (LOG_ID, "")
        nats.kill()
        await until(lambda: not lossy.connected)
        trust.look_again()
        assert (trust.log_id, trust.damage) == (LOG_ID, "")
        nats.start()
        await until(lambda: trust.fresh and lossy.connected)
        assert (trust.log_id, trust.damage) == (LOG_ID, "")
