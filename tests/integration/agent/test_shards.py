"""All shards of a node: their slots and state files, with a real log and no engine."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import AssignedShard, Assignment, Gone, ShardStatus
from schemas.ids import LogId, ReplicaId
from services.agent import clock
from services.agent.disk import Disk
from services.agent.host import Host
from services.agent.node import read_shards
from services.agent.probe import session
from services.agent.reports import Reports
from services.agent.shard import Life, begin, report
from services.agent.shards import Shards
from services.agent.store import Store
from services.fleet.reading import Read, read_any
from services.log import streams
from services.log.connect import Connection
from services.log.snapshot import get
from services.log.write import Writer
from tests.builders import an_event
from tests.support.node import NODE
from tests.support.shards import an_order
from tests.support.waiting import until

LOG = LogId("0" * 32)


class SlowStore(Store):
    """Saves wait while it is held."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.free = threading.Event()
        self.free.set()
        self.saving = False

    def save(self, life: Life) -> None:
        self.saving = True
        self.free.wait(30.0)
        super().save(life)
        self.saving = False


class Node:
    """What an agent has, save a follower of its assignment."""

    def __init__(self, connection: Connection, data: Path) -> None:
        self.connection = connection
        self.store = SlowStore(data)
        self.reports = Reports(NODE, "incarnation-1")
        self.shards = Shards(self.store, Disk(), self.reports)
        self.writer = Writer(
            connection,
            source=f"agent/{NODE}",
            log_id=LOG,
            now=time.time,
            may_replace=lambda _standing: True,
        )
        self._orders: asyncio.Queue[tuple[AssignedShard, ...]] = asyncio.Queue()

    def assign(self, *orders: AssignedShard) -> None:
        self._orders.put_nowait(orders)

    async def run(self) -> None:
        """Resume what is on disk, tell it, obey."""
        async with session() as http, asyncio.TaskGroup() as group:
            host = Host(
                store=self.store,
                disk=Disk(),
                environments={},
                secrets_folder=self.store.data,
                http=http,
                source=random.Random(1),
                changed=self.shards.changed,
                in_the_way=self.shards.in_the_way,
                failed=lambda _replica, _said: None,
            )
            self.shards.resume(self.store.load(), host, group)
            group.create_task(self.writer.run())
            group.create_task(self.shards.retire())
            self.reports.begin(self.writer)
            self.shards.tell_all()
            while True:
                orders = await self._orders.get()
                self.shards.assign(Assignment(node=NODE, shards=orders), host, group)

    async def round_trip(self) -> None:
        """Whatever was on its way to the log is there."""
        for _ in range(5):
            self.writer.put(subjects.node_shard(NODE, 99), "shard.gone", Gone(id=ReplicaId("x")))
            await self.writer.idle()

    async def document(self, slot: int) -> str:
        """Whose shard stands there; `gone …` where it is over."""
        await self.round_trip()
        standing = await read_shards(self.connection, NODE, LOG)
        if (status := standing.get(str(slot))) is not None:
            return status.replica
        stored = await get(self.connection, subjects.node_shard(NODE, slot))
        found = read_any(stored.subject, stored.payload, ShardStatus) if stored else None
        gone = found.document if isinstance(found, Read) else None
        return f"gone {gone.id}" if isinstance(gone, Gone) else ""


@asynccontextmanager
async def a_node(connection: Connection, data: Path, *lives: Life) -> AsyncGenerator[Node]:
    """It resumes these."""
    await streams.create(connection)
    node = Node(connection, data)
    for life in lives:
        node.store.save(life)
    running = asyncio.ensure_future(node.run())
    try:
        yield node
    finally:
        node.store.free.set()
        running.cancel()
        await asyncio.wait([running])


def an_assigned(replica: str) -> AssignedShard:
    return replace(an_order("/none.gguf", 1), replica=ReplicaId(replica))


def a_failed(replica: str) -> Life:
    """Wanted, and waiting for a change."""
    life, _ = begin(an_assigned(replica), 0, clock.now())
    return replace(life, phase="failed")


def a_stopped(replica: str, *, wanted: bool) -> Life:
    """A day older."""
    life = a_failed(replica)
    return replace(life, phase="stopped", wanted=wanted, since=life.since - 86400.0)


async def test_a_file_that_is_being_written_does_not_come_back(
    connection: Connection, tmp_path: Path
) -> None:
    life = a_stopped("old-0-1", wanted=True)
    async with a_node(connection, tmp_path, life) as node:
        node.assign(life.order)
        await until(lambda: node.shards.lives and not node.store.saving)
        await node.round_trip()
        node.store.free.clear()
        node.assign()
        await until(lambda: node.store.saving)
        await node.round_trip()
        node.store.free.set()
        await until(lambda: not node.shards.lives)
        await until(lambda: not node.store.saving)
        assert node.store.load() == []
        assert await node.document(0) == "gone old-0-1"


@pytest.mark.parametrize("name", ["a-0-1", "z-0-1"])
async def test_the_live_one_keeps_a_slot_that_two_files_name(
    connection: Connection, tmp_path: Path, name: str
) -> None:
    live = a_failed("live-0-1")
    async with a_node(connection, tmp_path, live, a_stopped(name, wanted=False)) as node:
        node.assign(live.order)
        await until(lambda: len(node.shards.lives) == 1)
        assert await node.document(0) == "live-0-1"
        assert await node.document(1) == f"gone {name}"
        assert [(each.replica, each.slot) for each in node.store.load()] == [("live-0-1", 0)]


async def test_nothing_is_told_of_another_in_the_slot_of_one_that_holds_it(
    connection: Connection, tmp_path: Path
) -> None:
    live, other = a_failed("live-0-1"), a_stopped("old-0-1", wanted=False)
    async with a_node(connection, tmp_path, live) as node:
        node.assign(live.order)
        await until(lambda: node.shards.lives)
        node.shards.changed(other)
        assert await node.document(0) == "live-0-1"
        node.shards.meet({"0": report(other, NODE, "incarnation-0")})
        node.assign(live.order)
        assert await node.document(1) == "gone old-0-1"
        assert await node.document(0) == "live-0-1"


async def test_one_whose_document_was_written_over_tells_itself_again(
    connection: Connection, tmp_path: Path
) -> None:
    live = a_failed("live-0-1")
    async with a_node(connection, tmp_path, live) as node:
        assert await node.document(0) == "live-0-1"
        subject = subjects.node_shard(NODE, 0)
        told = node.writer.standing(subject)
        node.shards.check(await read_shards(connection, NODE, LOG))
        await node.round_trip()
        assert node.writer.standing(subject) == told
        node.writer.put(subject, "shard.gone", Gone(id=ReplicaId("old-0-1")))
        assert await node.document(0) == "gone old-0-1"
        node.shards.check(await read_shards(connection, NODE, LOG))
        assert await node.document(0) == "live-0-1"


# spec: L5
async def test_what_stands_in_a_slot_that_no_replica_has_is_cleared(
    connection: Connection, tmp_path: Path
) -> None:
    newer = an_event(
        report(a_failed("new-0-1"), NODE, "incarnation-0"),
        src=f"agent/{NODE}",
        log=LOG,
        version=99,
    )
    async with a_node(connection, tmp_path, a_failed("live-0-1")) as node:
        assert await node.document(0) == "live-0-1"
        for slot, junk in {"3": b"junk", "7": newer, "none": b"{}"}.items():
            await connection.request(subjects.node_slot(NODE, slot), junk, 5.0)
        standing = await read_shards(connection, NODE, LOG)
        assert {slot for slot, status in standing.items() if status is None} == {"3", "7", "none"}
        node.shards.check(standing)
        await node.round_trip()
        standing = await read_shards(connection, NODE, LOG)
        assert list(standing) == ["0"]
        head = await streams.head(connection)
        node.shards.check(standing)
        await node.writer.idle()
        assert await streams.head(connection) == head
