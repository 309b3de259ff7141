"""Shell of the agent: assignment in, reports out.

Engines come first: they are adopted and kept before NATS is there, and when it is not. The log is
spoken to only while it is the one followed before (`services.log.identity`).
"""

import asyncio
import random  # noqa: TID251 - for its type.
import secrets
import time
from collections.abc import Callable

import aiohttp
import structlog
from aiohttp import web

from schemas import codec, subjects
from schemas.beats import AgentBeat, NodeLoad
from schemas.documents import Assignment
from schemas.events import log_prefix
from schemas.ids import LogId, ReplicaId
from services.agent import gpus, probe, sessions
from services.agent.config import Config
from services.agent.disk import Disk
from services.agent.host import Host
from services.agent.metrics import Metrics
from services.agent.node import (
    NameTaken,
    check_name,
    describe,
    described,
    incarnation_of,
    read_info,
    read_shards,
)
from services.agent.reports import Reports
from services.agent.seen import keep_seen
from services.agent.shards import Shards
from services.agent.store import Store
from services.fleet.damage import read_seen
from services.fleet.reading import Read, read
from services.log.connect import Connection, Unavailable
from services.log.follow import Follower
from services.log.identity import Trust
from services.log.snapshot import get
from services.log.stored import Stored
from services.log.write import Writer
from services.runtime.admin import admin_app, listen
from services.runtime.files import read_if_there

log = structlog.get_logger()

BEAT_SECONDS = 1.0
RETRY_SECONDS = 0.5
RESYNC_SECONDS = 30.0


class CannotListen(Exception):
    """The admin listener's address is taken, or none of this host."""


class Agent:
    """One node. `run` ends when cancelled, with NameTaken or with CannotListen."""

    def __init__(self, config: Config, store: Store, source: random.Random) -> None:
        self.config = config
        self.store = store
        self.incarnation = secrets.token_hex(8)
        self.connection = Connection(config.nats, f"agent/{config.node}")
        self._source = source
        self._reports = Reports(config.node, self.incarnation)
        self._disk = Disk()
        self.shards = Shards(self.store, self._disk, self._reports)
        self._turned = asyncio.Event()
        seen = read_seen(read_if_there(self.store.seen))
        self.trust = Trust(self.connection, seen, self._turned.set)
        self._assigned: tuple[LogId, int] | None = None
        """The log and the sequence there of the assignment that was last obeyed."""
        self._speaks_for_node = False
        self._name_lost = ""
        """Why this agent must not speak for the node any more."""
        self._cards = gpus.Snapshot()
        self._machine_id = self.store.machine_id()

    async def run(self) -> None:
        """Until cancelled. Engines live on."""
        async with probe.session() as http, asyncio.TaskGroup() as group:
            metrics = Metrics(
                lambda: self.shards.lives,
                lambda: bool(self.trust.damage),
                lambda: self.connection.denials,
            )
            app = admin_app(lambda: True, self._ready, metrics.registry)
            admin = await self._listen(app)
            try:
                await self._work(self._host(http, group), group)
            finally:
                await self.connection.close()
                await admin.cleanup()

    async def _listen(self, app: web.Application) -> web.AppRunner:
        try:
            return await listen(app, self.config.listen)
        except OSError as error:
            raise CannotListen(f"{self.config.listen}: {error.strerror}") from error

    def _host(self, http: aiohttp.ClientSession, group: asyncio.TaskGroup) -> Host:
        def failed(replica: ReplicaId, said: str) -> None:
            """Outside the log, and only if NATS is there: the shard's document has the cause."""
            subject = subjects.tail(self.config.node, replica)
            group.create_task(self._publish(subject, said.encode()))

        return Host(
            store=self.store,
            disk=self._disk,
            environments={each.name: each for each in self.config.environments},
            secrets_folder=self.config.secrets_folder,
            http=http,
            source=self._source,
            changed=self.shards.changed,
            in_the_way=self.shards.in_the_way,
            failed=failed,
        )

    async def _publish(self, subject: str, payload: bytes) -> None:
        """Once: lost where NATS is away."""
        await self.connection.publish(subject, payload)

    async def _work(self, host: Host, group: asyncio.TaskGroup) -> None:
        lives = self.store.load()
        # Before any run that is not in `lives`.
        found = await asyncio.to_thread(sessions.orphans, self.store, lives)
        unread, orphans = sessions.apart(self.store, found)
        self.shards.resume(lives, host, group, unread)
        await self.connection.start()
        group.create_task(self.trust.run())
        group.create_task(keep_seen(self.trust, self.store.seen, self._disk))
        group.create_task(self.shards.retire())
        group.create_task(self._beat())
        looking = group.create_task(gpus.look())
        await sessions.end(orphans)
        self._cards = await looking
        while True:
            while (log_id := self.trust.log_id) is None:
                await self._turn()
            await self._speak(log_id, host, group)

    async def _turn(self) -> None:
        """Returns when trust in the log has changed, or the name was lost."""
        await self._turned.wait()
        self._turned.clear()
        if self._name_lost:
            raise NameTaken(self._name_lost)

    async def _speak(self, log_id: LogId, host: Host, group: asyncio.TaskGroup) -> None:
        """Write and obey as long as this log is trusted."""
        writer = Writer(
            self.connection,
            source=f"agent/{self.config.node}",
            log_id=log_id,
            now=_now,
            may_replace=lambda standing: self._may_replace(writer, log_id, standing),
        )

        waiting: list[Stored] = []
        """Came over a link that nothing is known of yet."""

        def obey() -> None:
            while waiting and self.trust.fresh:
                self._obey(log_id, waiting.pop(0), host, group)

        def arrived(stored: Stored) -> None:
            waiting.append(stored)
            obey()

        async with asyncio.TaskGroup() as speaking:
            tasks = (
                speaking.create_task(writer.run()),
                speaking.create_task(self._converse(writer, log_id, arrived)),
            )
            while self.trust.log_id == log_id:
                obey()
                await self._turn()
            self._reports.end()
            for task in tasks:
                task.cancel()

    async def _converse(
        self, writer: Writer, log_id: LogId, arrived: Callable[[Stored], None]
    ) -> None:
        await self._meet(log_id)
        self._reports.begin(writer)
        self.shards.tell_all()
        await writer.idle()  # Whoever reads of the node must not take it for empty.
        await self._register(writer)
        subject = subjects.assignment(self.config.node)
        follower = Follower(self.connection, (subject,), lambda: (subject,), arrived)
        async with asyncio.TaskGroup() as following:
            following.create_task(follower.run())
            following.create_task(self._check(writer, log_id))
            while True:  # The last live copy of a subject may be lost without a trace.
                await asyncio.sleep(RESYNC_SECONDS * self._source.uniform(0.5, 1.5))
                follower.resync()

    async def _check(self, writer: Writer, log_id: LogId) -> None:
        """Now and then, whether the node's documents in the log are what was told. For ever."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS * self._source.uniform(0.5, 1.5))
            await self._reports.settled()
            try:
                subject = subjects.node_info(self.config.node)
                if read_info(await get(self.connection, subject), log_id) is None:
                    self._describe(writer)
                self.shards.check(await read_shards(self.connection, self.config.node, log_id))
            except Unavailable as error:
                log.info("agent.check_waits", reason=str(error))

    async def _meet(self, log_id: LogId) -> None:
        """Whether the node's name is free, and which shard documents stand there."""
        while True:
            try:
                stored = await get(self.connection, subjects.node_info(self.config.node))
                standing = described(stored, log_id)
                shards = await read_shards(self.connection, self.config.node, log_id)
                break
            except Unavailable as error:
                log.info("agent.register_waits", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        check_name(self.config.node, standing, self._machine_id)
        self.shards.meet(shards)

    async def _register(self, writer: Writer) -> None:
        """Claim the node's name. All that it runs stands in the log by then."""
        self._describe(writer)
        await writer.idle()
        self._speaks_for_node = not self._name_lost

    def _describe(self, writer: Writer) -> None:
        info = describe(
            self.config, self.incarnation, self._machine_id, self._cards, self.shards.sessions
        )
        writer.put(subjects.node_info(self.config.node), "node.described", info)

    def _may_replace(self, writer: Writer, log_id: LogId, standing: Stored) -> bool:
        """At the first write the predecessor's document stands there; later, a successor's."""
        info = described(standing, log_id)
        another_machine = info is not None and info.machine_id not in (None, self._machine_id)
        another_agent = incarnation_of(standing) not in ("", self.incarnation)
        if another_machine or (another_agent and writer.standing(standing.subject)):
            self._name_lost = f"name in use: another agent has written {standing.subject}"
            self._turned.set()
            return False
        return True

    def _obey(self, log_id: LogId, stored: Stored, host: Host, group: asyncio.TaskGroup) -> None:
        """Assignments are ordered by (log id, LOG sequence) alone.

        One that cannot be read, or that a newer version wrote, changes nothing.
        """
        if stored.sequence <= self._obeyed(log_id):
            return
        if self.trust.seen is not None and stored.sequence < self.trust.seen.obeyed:
            log.warning("assignment.older", sequence=stored.sequence, obeyed=self.trust.seen.obeyed)
            return  # The log was shortened, and has grown since.
        match read(stored.subject, stored.payload, Assignment):
            case Read(event=event) if event.log != log_prefix(log_id):
                self.trust.look_again()
            case Read(document=assignment):
                self.trust.obeyed(stored.sequence)
                self._assigned = (log_id, stored.sequence)
                self.shards.assign(assignment, host, group)
            case other:
                log.warning("assignment.unreadable", sequence=stored.sequence, reason=other.reason)

    def _obeyed(self, log_id: LogId | None) -> int:
        """LOG sequence of the last assignment; 0: none of this log."""
        return self._assigned[1] if self._assigned and self._assigned[0] == log_id else 0

    def _ready(self) -> tuple[bool, str]:
        if self.trust.damage:
            return False, f"the log is not acted on: {self.trust.damage}"
        if self._disk.fault:
            return False, f"the disk refuses: {self._disk.fault}"
        if not self.connection.connected:
            return False, f"{self.connection.trouble}; engines are kept as they are"
        if not self._speaks_for_node:
            return False, self.connection.trouble or "the node is not registered yet"
        return True, self.connection.trouble

    async def _beat(self) -> None:
        while True:
            if self._speaks_for_node or self.trust.damage:
                node, seen = self.config.node, self.trust.seen
                obeyed = self._obeyed(seen.log if seen else None)
                beat = AgentBeat(
                    node=node,
                    incarnation=self.incarnation,
                    log=seen.log if seen else None,
                    highest=seen.highest if seen else 0,
                    assignment=obeyed,
                    damaged=self.trust.damage,
                    held=None if obeyed and not self.trust.damage else self.shards.held(),
                )
                load = NodeLoad(node=node, engines=self.shards.loads())
                await self.connection.publish(subjects.agent_beat(node), codec.encode(beat))
                await self.connection.publish(subjects.load(node), codec.encode(load))
            await asyncio.sleep(BEAT_SECONDS)


def _now() -> float:
    return time.time()  # noqa: TID251 - the shell owns the clock.
