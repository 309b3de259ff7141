"""The router's link to the log: keeps the table current by push, and says how far it has come.

No request waits for anything here. How it fails:
- NATS is away, also at start: what is known serves on, the disk copy across restarts; the link comes
  back by itself and everything is read again.
- The log is not the one that was followed (`services.log.identity`): nothing of it is applied, the
  table stays as it is, and that is said; a genesis that names the known log as its parent is followed.
  Nothing that comes over a new link is applied before that was asked there.
- The leader announces documents that have not come for two seconds: all is read again.
- A catalog that this version refuses, a document that cannot be read: the one before serves on.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import structlog

from schemas import codec, subjects
from schemas.beats import ControlBeat, NodeLoad, RouterBeat
from schemas.events import log_prefix
from schemas.ids import LogId, RouterId
from services.log.connect import Connection
from services.log.follow import Follower
from services.log.identity import Trust
from services.log.message import Message
from services.log.spoken import Spoken
from services.log.stored import Stored
from services.router import disk
from services.router.endpoints import Table
from services.router.proxy import Clock
from services.router.routing import PATTERNS, Routing
from services.router.source import Mode, Standing

BEAT_SECONDS = 1.0
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
        self._connection = connection
        self._table = table
        self._folder = folder
        self._router = router
        self._incarnation = incarnation
        self._clock = clock
        self._routing = Routing(table)
        self._trust = Trust(connection, None, self._turn)
        self._kept = self._trust.seen
        """As it stands in the disk copy."""
        self._spoken = Spoken()
        self._follower: Follower | None = None
        self._current = False
        """The follower has read everything at least once."""
        self._applied = 0
        self._waiting: list[Stored] = []
        """Came over a link that nothing is known of yet."""
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
        self._trust.seen = self._kept = kept.seen
        if not self._routing.restore(kept):
            return False
        self._mode = "disk"
        log.info("router.restored", revision=kept.revision, models=len(self._table.targets))
        return True

    def standing(self) -> Standing:
        return Standing(
            mode=self._mode,
            connected=self._connection.connected,
            log="" if self._trust.seen is None else self._trust.seen.log,
            applied=self.applied,
            revision=self._routing.revision,
            changed=self._changed,
            damage=self._trust.damage,
            refused=self._routing.refused,
            unreadable=self._routing.unreadable,
            beats_dropped=self._spoken.dropped,
        )

    @property
    def applied(self) -> int:
        """Every document up to this LOG sequence is in the table."""
        if self._follower is not None and self._current and self._trust.fresh:
            self._applied = self._follower.applied
        return 0 if self._follower is None else self._applied

    async def run(self) -> None:
        """Follow, beat and keep the disk copy, for ever."""
        await self._connection.subscribe(subjects.ALL_CONTROL_BEATS, self._on_control_beat)
        await self._connection.subscribe(subjects.ALL_LOADS, self._on_load)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._trust.run())
                group.create_task(self._follow())
                group.create_task(self._beat())
                group.create_task(self._keep())
        finally:
            if self._is_unsaved:
                disk.save(self._folder, self._routing.copy(self._trust.seen))

    async def _follow(self) -> None:
        while True:
            await self._until(lambda: self._trust.fresh)
            routing = self._routing
            follower = Follower(self._connection, PATTERNS, routing.wanted, self._arrived)
            self._follower, self._current = follower, False
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(follower.run()),
                    group.create_task(self._first_sync(follower)),
                ]
                await self._until(partial(self._is_left, routing))
                for task in tasks:
                    task.cancel()
            self._follower = None

    def _is_left(self, routing: Routing) -> bool:
        return self.log_id is None or self._routing is not routing

    async def _first_sync(self, follower: Follower) -> None:
        """The table becomes the log's once all is read; an empty log is an answer too.

        While the log has no catalog, as after a recovery, the table stays as it is.
        """
        while True:
            if follower.synced and not self._waiting:
                self._current = True
                self._take_over(follower)
                if self._routing.settled:
                    return
            await asyncio.sleep(SYNC_SECONDS)

    def _take_over(self, follower: Follower) -> None:
        """Never in the middle of a reading: the catalog is read before the endpoints are."""
        if not self._current or not (follower.synced or self._routing.settled):
            return
        if self._routing.settle():
            self._mode = "log"
        self._table.known = True

    # Documents.

    def _arrived(self, stored: Stored) -> None:
        if self._trust.fresh:
            self._apply(stored)
        else:
            self._waiting.append(stored)

    def _apply(self, stored: Stored) -> None:
        known = self.log_id
        if known is None or _log_of(stored) not in ("", log_prefix(known)):
            self._trust.look_again()  # The log was replaced under the link that stands.
            return
        self._trust.note(stored.sequence)
        before = (self._routing.revision, self._routing.refused)
        if self._routing.apply(stored.sequence, stored.subject, stored.payload):
            self._changed, self._unsaved = self._clock.monotonic(), True
            if self._follower is not None:
                self._take_over(self._follower)
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

    def _turn(self) -> None:
        """There is another log, damage, or a new link over which the log was found."""
        if self._trust.damage:
            self._waiting.clear()
        elif self._trust.fresh:
            if self._routing.log_id not in (None, self.log_id):
                self._routing = Routing(self._table)
            waiting, self._waiting = self._waiting, []
            for stored in waiting:
                self._apply(stored)
        self._turned.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._turned.clear()
            await self._turned.wait()

    @property
    def log_id(self) -> LogId | None:
        """The log that is followed and may be written to; None: none, or not now."""
        return self._trust.log_id

    async def turns(self, log_id: LogId | None) -> LogId | None:
        """`log_id` once it is another than this."""
        await self._until(lambda: self.log_id != log_id)
        return self.log_id

    # Beats.

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            seen = self._trust.seen
            beat = RouterBeat(
                router=self._router,
                incarnation=self._incarnation,
                log=None if seen is None else seen.log,
                highest=0 if seen is None else seen.highest,
                applied=self.applied,
                damaged=self._trust.damage,
            )
            await self._connection.publish(subjects.router_beat(self._router), codec.encode(beat))

    def _on_control_beat(self, message: Message) -> None:
        beat = self._spoken.read(message, ControlBeat, lambda b: subjects.control_beat(b.control))
        if beat is None:
            return
        if self.log_id is None:
            return
        if beat.damaged or beat.log != self.log_id:
            self._trust.look_again()
        elif beat.leading:
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
        load = self._spoken.read(message, NodeLoad, lambda load: subjects.load(load.node))
        if load is not None:
            self._table.loaded(load.engines, self._clock.monotonic())

    # Disk.

    @property
    def _is_unsaved(self) -> bool:
        return self._unsaved or self._trust.seen != self._kept

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            if self._is_unsaved:
                self._unsaved, self._kept = False, self._trust.seen
                copy = self._routing.copy(self._kept)
                await asyncio.to_thread(disk.save, self._folder, copy)


def _log_of(stored: Stored) -> str:
    """Empty where it cannot be read."""
    try:
        return codec.decode_event(stored.payload).log
    except msgspec.DecodeError:
        return ""
