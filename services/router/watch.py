"""The router's link to the log: keeps the table current by push, and says how far it has come.

No request waits for anything here. How it fails:
- NATS is away, also at start: what is known serves on, the disk copy across restarts; the link comes
  back by itself and everything is read again.
- The log is not the one that was followed (`services.fleet.damage`): nothing of it is applied, the
  table stays as it is, and that is said; a genesis that names the known log as its parent is followed.
  This is asked over every new link before anything that came over it is applied, when a document or
  the leader's beat does not fit, and every five seconds.
- The leader announces documents that have not come for two seconds: all is read again.
- A catalog that this version refuses, a document that cannot be read: the one before serves on.
"""

import asyncio
from pathlib import Path

import msgspec
import structlog

from schemas import codec, subjects
from schemas.beats import ControlBeat, NodeLoad, RouterBeat
from schemas.documents import Genesis
from schemas.events import log_prefix
from schemas.ids import LogId, RouterId
from services.fleet.damage import Seen, damage
from services.log import streams
from services.log.connect import Connection
from services.log.follow import Follower
from services.log.message import Message, Unavailable
from services.log.snapshot import get
from services.log.stored import Stored
from services.log.streams import LogMissing
from services.router import disk
from services.router.endpoints import Table
from services.router.proxy import Clock
from services.router.routing import PATTERNS, Routing
from services.router.source import Mode, Standing

BEAT_SECONDS = 1.0
CHECK_SECONDS = 5.0
RETRY_SECONDS = 0.25
BEHIND_SECONDS = 2.0
SYNC_SECONDS = 0.02
SAVE_SECONDS = 0.1
"""Between two writes of the disk copy: what is newer than that a kill -9 may take."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Watch:
    """Follows one log at a time."""

    def __init__(
        self,
        connection: Connection,
        table: Table,
        folder: Path,
        router: RouterId,
        incarnation: str,
        clock: Clock,
    ) -> None:
        self.damage = ""
        """Why nothing of the log is applied; empty: it is the known one, or none was asked yet."""
        self._connection = connection
        self._table = table
        self._folder = folder
        self._router = router
        self._incarnation = incarnation
        self._clock = clock
        self._routing = Routing(table)
        self._seen: Seen | None = None
        self._follower: Follower | None = None
        self._current = False
        """The follower has read everything at least once."""
        self._applied = 0
        self._trusted = 0
        """The link (its generation) over which the log was found to be the known one."""
        self._waiting: list[Stored] = []
        """Came over a link that nothing is known of yet."""
        self._recheck = asyncio.Event()
        self._turned = asyncio.Event()
        self._changed = clock.monotonic()
        self._behind_since: float | None = None
        self._mode: Mode = "seed" if table.known else "none"
        self._unsaved = False

    def restore(self) -> bool:
        """Serve from the disk copy. False: there is none that can be used."""
        kept = disk.load(self._folder)
        if kept is None:
            return False
        self._seen = kept.seen
        if not self._routing.restore(kept):
            return False
        self._mode = "disk"
        log.info("router.restored", revision=kept.revision, models=len(self._table.targets))
        return True

    def standing(self) -> Standing:
        return Standing(
            mode=self._mode,
            connected=self._connection.connected,
            log="" if self._seen is None else self._seen.log,
            applied=self.applied,
            revision=self._routing.revision,
            changed=self._changed,
            damage=self.damage,
            refused=self._routing.refused,
            unreadable=self._routing.unreadable,
        )

    @property
    def applied(self) -> int:
        """Every document up to this LOG sequence is in the table."""
        trusted = self._trusted == self._connection.generation
        if self._follower is not None and self._current and trusted:
            self._applied = self._follower.applied
        return 0 if self._follower is None else self._applied

    async def run(self) -> None:
        """Follow, beat and keep the disk copy, for ever."""
        self._connection.on_change.append(self._linked)
        await self._connection.subscribe(subjects.ALL_CONTROL_BEATS, self._on_control_beat)
        await self._connection.subscribe(subjects.ALL_LOADS, self._on_load)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._beat())
                group.create_task(self._keep())
        finally:
            if self._unsaved:
                disk.save(self._folder, self._routing.copy(self._seen))

    async def _follow(self) -> None:
        while True:
            await self._until_trusted()
            routing = self._routing
            follower = Follower(self._connection, PATTERNS, routing.wanted, self._arrived)
            self._follower, self._current = follower, False
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(follower.run()),
                    group.create_task(self._first_sync(follower)),
                ]
                await self._while_trusted(routing)
                for task in tasks:
                    task.cancel()
            self._follower = None

    async def _first_sync(self, follower: Follower) -> None:
        """The table becomes the log's once all is read; an empty log is an answer too."""
        while not follower.synced or self._waiting:  # noqa: ASYNC110 - it has no event.
            await asyncio.sleep(SYNC_SECONDS)
        self._current = True
        self._take_over()

    def _take_over(self) -> None:
        if not self._current:
            return
        if self._routing.settle():
            self._mode = "log"
        self._table.known = True

    # Documents.

    def _arrived(self, stored: Stored) -> None:
        if self._trusted == self._connection.generation:
            self._apply(stored)
        else:
            self._waiting.append(stored)

    def _apply(self, stored: Stored) -> None:
        seen = self._seen
        if seen is None or _log_of(stored) not in ("", log_prefix(seen.log)):
            self._recheck.set()  # The log was replaced under the link that stands.
            return
        if stored.sequence > seen.highest:
            self._seen = Seen(seen.log, stored.sequence)
        before = (self._routing.revision, self._routing.refused)
        if self._routing.apply(stored.sequence, stored.subject, stored.payload):
            self._changed, self._unsaved = self._clock.monotonic(), True
            self._take_over()
        self._tell(stored, before)

    def _tell(self, stored: Stored, before: tuple[int, tuple[str, ...]]) -> None:
        routing = self._routing
        if stored.subject in routing.unreadable:
            log.error("router.unreadable", subject=stored.subject, sequence=stored.sequence)
        if routing.refused and routing.refused != before[1]:
            log.error("catalog.refused", serving=routing.revision, reasons=routing.refused[:5])
        elif routing.revision != before[0]:
            log.info("catalog.taken", revision=routing.revision)

    # Which log this is.

    def _linked(self, up: bool) -> None:
        if up:
            self._recheck.set()

    async def _until_trusted(self) -> None:
        while not await self._check():
            await self._pause(CHECK_SECONDS if self.damage else RETRY_SECONDS)

    async def _while_trusted(self, routing: Routing) -> None:
        while not self.damage and self._routing is routing:
            known = self._trusted == self._connection.generation
            await self._pause(CHECK_SECONDS if known else RETRY_SECONDS)
            await self._check()

    async def _pause(self, seconds: float) -> None:
        """Or until something calls for a check."""
        try:
            async with asyncio.timeout(seconds):
                await self._recheck.wait()
        except TimeoutError:
            pass
        self._recheck.clear()

    async def _check(self) -> bool:
        """Ask which log stands there. False: nobody could say, or it must not be followed."""
        link = self._connection.generation
        try:
            genesis, head = await self._ask()
        except Unavailable:
            return False
        reason = damage(self._seen, genesis, head)
        if reason is not None:
            self._distrust(reason)
            return False
        if genesis is None:
            return False  # No log was ever seen, and there is none yet.
        self._trust(genesis, head, link)
        return True

    async def _ask(self) -> tuple[Genesis | None, int]:
        try:
            head = await streams.head(self._connection)
        except LogMissing:
            return None, 0
        found = await get(self._connection, subjects.GENESIS)
        if found is None:
            return None, head
        try:
            return codec.decode(codec.decode_event(found.payload).data, Genesis), head
        except msgspec.DecodeError:
            return None, head

    def _distrust(self, reason: str) -> None:
        if reason != self.damage:
            log.error("log.damaged", reason=reason)
        self.damage = reason
        self._waiting.clear()
        self._turned.set()

    def _trust(self, genesis: Genesis, head: int, link: int) -> None:
        if self.damage:
            log.info("log.mended", log=genesis.log_id)
        self.damage = ""
        before = self._seen
        if before is None or before.log != genesis.log_id:
            self._seen = Seen(genesis.log_id, head)
            if self._routing.log_id not in (None, genesis.log_id):
                self._routing = Routing(self._table)
        elif head > before.highest:
            self._seen = Seen(genesis.log_id, head)
        self._unsaved = self._unsaved or self._seen != before
        self._trusted = link
        waiting, self._waiting = self._waiting, []
        for stored in waiting:
            self._apply(stored)
        self._turned.set()

    @property
    def log_id(self) -> LogId | None:
        """The log that is followed and may be written to; None: none, or not now."""
        return None if self._seen is None or self.damage or not self._trusted else self._seen.log

    async def turns(self, log_id: LogId | None) -> LogId | None:
        """`log_id` once it is another than this."""
        while self.log_id == log_id:
            self._turned.clear()
            await self._turned.wait()
        return self.log_id

    # Beats.

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            beat = RouterBeat(
                router=self._router,
                incarnation=self._incarnation,
                log=None if self._seen is None else self._seen.log,
                highest=0 if self._seen is None else self._seen.highest,
                applied=self.applied,
                damaged=self.damage,
            )
            await self._connection.publish(subjects.router_beat(self._router), codec.encode(beat))

    def _on_control_beat(self, message: Message) -> None:
        try:
            beat = codec.decode(message.payload, ControlBeat)
        except msgspec.DecodeError:
            return
        seen = self._seen
        if seen is None or self.damage:
            return
        if beat.damaged or beat.log != seen.log:
            self._recheck.set()
        else:
            self._compare(beat)

    def _compare(self, beat: ControlBeat) -> None:
        """Documents that the leader announces must come; pushes can be lost."""
        now = self._clock.monotonic()
        if self._follower is None or beat.routing <= self.applied:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since >= BEHIND_SECONDS:
            log.warning("router.behind", applied=self.applied, announced=beat.routing)
            self._behind_since = None
            self._follower.resync()

    def _on_load(self, message: Message) -> None:
        try:
            load = codec.decode(message.payload, NodeLoad)
        except msgspec.DecodeError:
            return
        self._table.loaded(load.engines, self._clock.monotonic())

    # Disk.

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            if self._unsaved:
                self._unsaved = False
                copy = self._routing.copy(self._seen)
                await asyncio.to_thread(disk.save, self._folder, copy)


def _log_of(stored: Stored) -> str:
    """Empty where it cannot be read."""
    try:
        return codec.decode_event(stored.payload).log
    except msgspec.DecodeError:
        return ""
