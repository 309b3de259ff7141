"""A hundred routers and agents, and a NATS that comes and goes: nothing is left behind on the server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio
from msgspec import Struct

from schemas import subjects
from services.log import pull
from services.log.api import call
from services.log.connect import Connection
from services.log.follow import Follower
from services.log.stored import Stored
from services.log.tail import Tail
from tests.support.events import an_event
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, until

FOLLOWERS = 100
TAILS = 2
"""Control services; nobody else has a consumer."""
INTERRUPTIONS = 6
PATTERN = "flotilla.log.s.assignment.*"
SUBJECT = "flotilla.log.s.assignment.n{}"


class _State(Struct, frozen=True):
    consumer_count: int


class _Info(Struct, frozen=True):
    state: _State


class Client:
    """One simulated program: a link, and what it follows."""

    def __init__(self, number: int, url: str) -> None:
        self.connection = Connection(url, f"client-{number}")
        self.applied: list[int] = []
        self._number = number

    def has(self, sequence: int) -> bool:
        return sequence in self.applied

    async def follow(self) -> None:
        subject = SUBJECT.format(self._number % 10)

        def apply(stored: Stored) -> None:
            self.applied.append(stored.sequence)

        await self.connection.start()
        await Follower(self.connection, (PATTERN,), lambda: (subject,), apply).run()

    async def tail(self) -> None:
        await self.connection.start()
        async for batch in Tail(self.connection, 0).batches():
            self.applied += [stored.sequence for stored in batch]


@pytest_asyncio.fixture
async def clients(proxy: Proxy, log: Connection) -> AsyncIterator[list[Client]]:
    made = [Client(number, proxy.url) for number in range(FOLLOWERS + TAILS)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client.follow()) for client in made[:FOLLOWERS]]
        tasks += [group.create_task(client.tail()) for client in made[FOLLOWERS:]]
        yield made
        for task in tasks:
            task.cancel()
    for client in made:
        await client.connection.close()


async def consumers(connection: Connection) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in (subjects.LOG, subjects.STATE):
        info = await call(connection, f"STREAM.INFO.{name}", None, _Info)
        found[name] = info.state.consumer_count
    return found  # The server's own, by which it feeds STATE, is not among them.


# case: JS-05
async def test_a_storm_of_reconnects_leaves_no_consumers_behind(
    nats: NatsServer,
    log: Connection,
    proxy: Proxy,
    clients: list[Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(pull.EPHEMERAL, "inactive_threshold", 3_000_000_000)  # Of 30 s.
    for number in range(INTERRUPTIONS):
        await all_have_what_is_new(log, clients)
        if number % 2:
            await proxy.cut()
        else:
            await asyncio.to_thread(nats.kill)
            await asyncio.to_thread(nats.start)
            await log.wait_connected()
    await all_have_what_is_new(log, clients)
    expected = Counter({subjects.LOG: TAILS, subjects.STATE: 0})

    async def back() -> bool:
        return await consumers(log) == expected

    await eventually(back, "only the expected consumers are left")


async def all_have_what_is_new(log: Connection, clients: list[Client]) -> None:
    newest: dict[int, int] = {}
    for number in range(10):
        event = an_event(SUBJECT.format(number))
        reply = await log.request(event.subject, event.payload, 5.0)
        newest[number] = int(reply.payload.split(b'"seq":')[1].rstrip(b"}"))
    for number, client in enumerate(clients[:FOLLOWERS]):
        await until(partial(client.has, newest[number % 10]))
    for client in clients[FOLLOWERS:]:
        await until(partial(client.has, newest[9]))
