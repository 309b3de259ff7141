"""Three servers, three copies: what was acknowledged outlives each of them, and clients find a way."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from schemas import codec, subjects
from schemas.documents import Document
from schemas.ids import LogId
from services.log import streams
from services.log.api import call
from services.log.append import Appended, Sealed, append
from services.log.connect import Connection
from services.log.follow import Follower
from services.log.guarded import Written, write
from services.log.message import Unavailable
from services.log.snapshot import read_state
from services.log.stored import Stored
from services.log.streams import StreamInfo
from services.log.tail import Tail
from services.log.write import Writer
from tests.support.events import an_event, id_of, lead
from tests.support.examples import rounds
from tests.support.nats_cluster import NatsCluster
from tests.support.nats_server import NatsServer
from tests.support.proxy import NOT_FOUND, Proxy
from tests.support.waiting import eventually, until

KILLS = rounds("NATS_CLUSTER_KILLS", 1)
"""Of each kind."""
PAUSE_SECONDS = 0.02
"""Between two writes, so that servers, clients and test keep up with one another on a small machine."""
ASSIGNMENT = "flotilla.log.s.assignment.n{}"
SHARD = "flotilla.log.s.node.n1.shard.{}"
FOLLOWED = [ASSIGNMENT.format(number) for number in range(20)]
ALL = (subjects.LOG, subjects.STATE, subjects.TAILS, subjects.CHECKPOINT)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    made = NatsCluster(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest_asyncio.fixture
async def connections(cluster: NatsCluster) -> AsyncIterator[Callable[[str], Connection]]:
    """Each call makes one more, to any of the three."""
    made: list[Connection] = []

    def connect(name: str) -> Connection:
        made.append(Connection(cluster.url, name))
        return made[-1]

    yield connect
    for connection in made:
        await connection.close()


async def ready(connection: Connection) -> Connection:
    await connection.start()
    await connection.wait_connected()
    return connection


async def created(connection: Connection) -> bool:
    """False: a young cluster gave no answer, as control may find it too."""
    try:
        return await streams.create(connection) == [streams.SYNC_UNKNOWN]
    except Unavailable:
        return False


class Value(Document, frozen=True, kw_only=True):
    """Stands for any document."""

    value: int


class Load:
    """Guarded batches and single writes without pause, and what was acknowledged of them."""

    def __init__(self, log: Connection, fence: int, writer: Writer) -> None:
        self.batched: list[str] = []
        """Ids of events in batches that were acknowledged."""
        self.single: list[tuple[str, int, int]] = []
        """Subject, value and LOG sequence of acknowledged single writes."""
        self.longest = 0.0
        """Seconds between two acknowledged batches."""
        self.stop = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self._log = log
        self._fence = fence
        self._writer = writer

    async def append(self) -> None:
        number, last = 0, time.monotonic()
        while not self.stop.is_set():
            number += 1
            count = (1, 5, 20)[number % 3]
            events = [an_event(ASSIGNMENT.format((number + n) % 20), number) for n in range(count)]
            outcome = await append(self._log, events, self._fence)
            assert isinstance(outcome, Appended), outcome
            self.batched += [event.id for event in events]
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now
            await asyncio.sleep(PAUSE_SECONDS)

    async def put(self) -> None:
        value = 0
        while not self.stop.is_set():
            value += 1
            for slot in range(5):
                self._writer.put(SHARD.format(slot), "test.reported", Value(value=value))
            await self._writer.idle()
            for slot in range(5):
                subject = SHARD.format(slot)
                self.single.append((subject, value, self._writer.standing(subject)))
            await asyncio.sleep(PAUSE_SECONDS)

    async def more(self) -> None:
        """Until both have gone on."""
        batched, single = len(self.batched) + 200, len(self.single) + 50
        await until(lambda: len(self.batched) > batched and len(self.single) > single)


class Watched:
    """What a Tail and a Follower have handed over."""

    def __init__(self, tail: Tail, follower: Follower) -> None:
        self.tailed: list[Stored] = []
        self.tail = tail
        self.follower = follower

    async def run(self) -> None:
        async for batch in self.tail.batches():
            self.tailed += batch


async def loaded(
    cluster: NatsCluster, connect: Callable[[str], Connection], stack: AsyncExitStack
) -> tuple[Connection, Load, Watched, dict[str, Stored]]:
    """Everything at work; ends with the stack."""
    log, agent, reader, router, asker = [
        await ready(connect(name)) for name in ("log", "agent", "reader", "router", "ask")
    ]
    await cluster.until_complete()
    await eventually(lambda: created(asker), "the streams are made")
    await cluster.until_whole(asker, *ALL)
    writer = Writer(
        agent,
        source="agent/n1",
        log_id=LogId("0123456789abcdef"),
        now=time.time,
        may_replace=lambda _: True,
    )
    applied: dict[str, Stored] = {}

    def apply(stored: Stored) -> None:
        assert stored.subject not in applied or applied[stored.subject].sequence < stored.sequence
        applied[stored.subject] = stored

    follower = Follower(router, ("flotilla.log.s.assignment.*",), lambda: FOLLOWED, apply)
    watched = Watched(Tail(reader, 0), follower)
    load = Load(log, await lead(log), writer)
    group = await stack.enter_async_context(asyncio.TaskGroup())
    endless = [group.create_task(each) for each in (writer.run(), watched.run(), follower.run())]
    load.tasks = [group.create_task(load.append()), group.create_task(load.put())]
    stack.callback(lambda: [task.cancel() for task in endless])
    stack.callback(load.stop.set)
    return asker, load, watched, applied


# spec: L6
async def test_no_acknowledged_event_is_lost_or_doubled_whoever_is_killed(
    cluster: NatsCluster, connections: Callable[[str], Connection]
) -> None:
    async with AsyncExitStack() as stack:
        asker, load, watched, applied = await loaded(cluster, connections, stack)
        await load.more()

        async def meta() -> NatsServer:
            return await cluster.until_meta()

        async def of_log() -> NatsServer:
            return await cluster.until_leader(asker, subjects.LOG)

        async def of_state() -> NatsServer:
            return await cluster.until_leader(asker, subjects.STATE)

        for ask in [of_log, of_state, meta] * KILLS:
            victim, load.longest = await ask(), 0.0
            await asyncio.to_thread(victim.kill)
            await load.more()
            print(f"{ask.__name__}: acks paused for {load.longest:.1f} s")  # noqa: T201
            await asyncio.to_thread(victim.start)
            await cluster.until_whole(asker, *ALL)
        await settled(asker, load, watched, applied)


# spec: L6
async def test_a_rolling_restart_loses_nothing_and_pauses_no_longer_than_an_election(
    cluster: NatsCluster, connections: Callable[[str], Connection]
) -> None:
    async with AsyncExitStack() as stack:
        asker, load, watched, applied = await loaded(cluster, connections, stack)
        ways = [NatsServer.stop, NatsServer.retire, NatsServer.stop]
        for each, end in zip(cluster.servers, ways, strict=True):
            load.longest = 0.0
            await asyncio.to_thread(end, each)
            await load.more()
            print(f"{end.__name__}: acks paused for {load.longest:.1f} s")  # noqa: T201
            await asyncio.to_thread(each.start)
            await cluster.until_whole(asker, *ALL)
        await settled(asker, load, watched, applied)


async def settled(
    asker: Connection, load: Load, watched: Watched, applied: dict[str, Stored]
) -> None:
    """Stop, let everything come to rest, and compare all with LOG."""
    load.stop.set()
    await asyncio.gather(*load.tasks)
    head = await streams.head(asker)
    await until(lambda: watched.tail.sequence >= head)
    assert [stored.sequence for stored in watched.tailed] == list(range(1, head + 1))
    ids = Counter(id_of(stored.payload) for stored in watched.tailed)
    assert [each for each, count in ids.items() if count > 1] == []
    assert [each for each in load.batched if each not in ids] == []
    by_sequence = {stored.sequence: stored for stored in watched.tailed}
    for subject, value, sequence in load.single:
        assert by_sequence[sequence].subject == subject
        assert value_of(by_sequence[sequence]) == value
    last = {stored.subject: stored.sequence for stored in watched.tailed}
    followed = {subject: last[subject] for subject in FOLLOWED}
    await until(lambda: {s: stored.sequence for s, stored in applied.items()} == followed)

    documents = await eventually(lambda: whole_state(asker), "STATE is read")
    assert [d for d in documents if by_sequence[d.sequence].payload != d.payload] == []
    # It may be behind by a minute: what is missing in it stands above the newest that it has.
    newest = max(document.sequence for document in documents)
    rebuilt = [*documents, *(stored for stored in watched.tailed if stored.sequence > newest)]
    assert {stored.subject: stored.sequence for stored in rebuilt} == last


async def whole_state(connection: Connection) -> list[Stored] | None:
    """None: the read broke off."""
    try:
        return (await read_state(connection))[0]
    except Unavailable:
        return None


def value_of(stored: Stored) -> int:
    return codec.decode(codec.decode_event(stored.payload).data, Value).value


# spec: L6
async def test_streams_of_a_cluster_have_three_copies_unless_told_otherwise(
    cluster: NatsCluster, connections: Callable[[str], Connection]
) -> None:
    log = await ready(connections("log"))
    assert log.cluster == "flotilla"
    await cluster.until_complete()
    monitor = ("127.0.0.1", cluster.servers[0].monitor_port)

    async def copies() -> set[int]:
        found = [await call(log, f"STREAM.INFO.{name}", None, StreamInfo) for name in ALL]
        assert {info.config["compression"] for info in found} == {"none"}
        return {info.config["num_replicas"] for info in found}

    refused = await streams.create(log, 5, monitor)
    assert len(refused) == len(ALL)
    assert "num_replicas 5" in refused[0]
    assert not await streams.exists(log)
    assert await streams.create(log, 1, monitor) == [streams.ONE_COPY]
    assert await copies() == {1}
    await log.request("flotilla.log.e.command.mark", an_event("x").payload, 5.0)
    assert await streams.create(log, monitor=monitor) == []  # As after an upgrade from one server.
    assert await copies() == {3}
    await cluster.until_whole(log, *ALL)
    assert await streams.head(log) == 1
    assert await streams.create(log, 5, monitor) != []
    assert await copies() == {3}


async def test_what_a_replica_that_lags_answered_is_read_again(
    cluster: NatsCluster,
    connections: Callable[[str], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.log.follow.LAG_SECONDS", 0.5)
    log = await ready(connections("log"))
    await cluster.until_complete()
    await eventually(lambda: created(log), "the streams are made")
    event = an_event(ASSIGNMENT.format(0))
    await eventually(lambda: stored(log, event), "it is written")
    proxy = Proxy(cluster.servers[0].port)
    await proxy.start()
    lagging, applied = Connection(proxy.url, "lagging"), list[int]()
    proxy.change = lambda frame: NOT_FOUND if b"Nats-Subject" in frame.body else None

    def apply(found: Stored) -> None:
        applied.append(found.sequence)

    follower = Follower(lagging, ("flotilla.log.s.assignment.*",), lambda: [event.subject], apply)
    await lagging.start()
    running = asyncio.ensure_future(follower.run())
    await until(lambda: follower.resyncs == 1)
    assert applied == []
    proxy.change = lambda _: None
    await until(lambda: applied == [1])
    running.cancel()
    await asyncio.wait([running])
    await lagging.close()
    await proxy.close()


async def stored(log: Connection, event: Sealed) -> bool:
    try:
        return isinstance(await write(log, event, 0), Written)
    except Unavailable:
        return False
