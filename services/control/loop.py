"""Receive, fold, decide, append: the one place where control acts. Shell.

A turn: claim if it is time; carry out one command after the other; decide over the whole fleet; append
what was decided as atomic batches guarded by our epoch (`writing.py`). Nobody acts before that, and our own events
come back through the log like everybody else's, before the next turn decides.

The log is opened first (`opening.py`), then its tail is followed. Is it not the log that was here
before, control keeps what it knows, serves it, and decides nothing.

How it fails:
- NATS away: it waits; whatever was in flight is carried to an end before anything else is decided.
- Fenced: another leads. It goes on following, and claims when that one falls silent.
- The server refuses a write for good: reported, and decided anew at the next tick.
- What stands in the log does not come, though the log says that it is there (a consumer on a server that
  lags): the log is opened anew, from a snapshot and with another consumer.
- Its end, or damage, meets a command in mid-write: the outcome is told as unknown.
- A command's plan raises: that command is told so, and the rest goes on.
- Its clean end: its last beat says that it resigns, so that another claims at once.
- The disk takes no note of how far the log was followed: told in `status`, and tried again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, time  # noqa: TID251 - `time` for display before there is a log.

import structlog
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.beats import ControlBeat
from schemas.frames import Frame
from schemas.ids import LogId
from schemas.recovery import Damage
from services.control.beating import is_routing, newest_routing, own_beat
from services.control.checkpoint import Checkpoints
from services.control.clock import Clock
from services.control.commanding.moment import Moment, Plan, Planned
from services.control.damage import SeenFile
from services.control.deciding.current import Current, CurrentCatalog, source_ahead
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.ears import REPORT_SECONDS, Ears
from services.control.followers import Followers
from services.control.leader import Leadership
from services.control.opening import Damaged, Opened, Opener
from services.control.passes import Passes
from services.control.recovery.beginning import Beginning
from services.control.recovery.job import JobFile
from services.control.recovery.procedure import Recovering
from services.control.requests import (
    Failed,
    LogRefuses,
    NotLeading,
    OutcomeUnknown,
    Request,
    Requests,
)
from services.control.seal import Envelope
from services.control.writing import Writing
from services.fleet.catalog import from_json
from services.fleet.damage import Seen
from services.fleet.state import FleetState
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.guarded import check
from services.log.message import Unavailable
from services.log.stored import Stored
from services.log.streams import LogDamaged, head
from services.log.tail import Tail

BEAT_SECONDS = 1.0
LOOK_SECONDS = 2.0
PROVEN_SECONDS = REPORT_SECONDS + 2 * LOOK_SECONDS
"""Everybody who beats was heard and judged by: a log that is followed then is the one known."""
RETRY_SECONDS = 0.2
STANDBY_SECONDS = 0.2
"""Between two looks of a standby whether it is time to claim."""
STALLED_LOOKS = 3
FOLD_SECONDS = 10.0
"""In which what stands in the log must come, while NATS is there."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Stalled(Exception):
    """What stands in the log does not come."""


class Loop:
    """`run` until cancelled. Everything else reads, or asks by `perform`."""

    def __init__(
        self,
        connection: Connection,
        leadership: Leadership,
        seen: SeenFile,
        tick_seconds: float,
        nats_monitor: tuple[str, int] | None = None,
        log_replicas: int | None = None,
        unreachable_after: float | None = UNREACHABLE_SECONDS,
    ) -> None:
        self.connection = connection
        self.leadership = leadership
        self.state = FleetState()
        self.followers = Followers()
        """How far others are behind."""
        self.ears = Ears(
            connection, lambda: self.state, self.followers, self._heard_control, unreachable_after
        )
        self.opener = Opener(
            connection,
            leadership.control,
            seen,
            self.ears,
            lambda: self.now(),
            nats_monitor,
            log_replicas,
        )
        self.writing = Writing(
            connection, leadership, lambda: self.state, lambda: self.now(), self.folded
        )
        file = JobFile(seen.beside("recovery.json"))
        self.recovering = Recovering(
            Beginning(
                connection, leadership, seen, self.opener, self.ears, lambda: self.state, file
            ),
            file,
            self.opener,
            self.ears,
            self.writing,
            lambda: self.state,
        )
        """Of a log that goes on from a lost one."""
        self._passes = Passes(lambda: self.state, self.ears.hearing, self.writing)
        self.settled = asyncio.Event()
        """The first turn is over, or there is a reason why there is none."""
        self._seen = seen
        self._tick_seconds = tick_seconds
        self._clock = Clock()
        self._catalog = CurrentCatalog()
        self._checkpoints = Checkpoints(
            connection, lambda: self.state, lambda: self.leading, lambda: self.now()
        )
        self._alarm = asyncio.Event()
        self._progress = asyncio.Condition()
        self._requests = Requests(self._alarm.set)
        self._newest = (0, 0.0)
        """LOG's newest message that was read: its sequence, and when LOG stored it."""
        self._looked_over = 0
        """The last link over which the log was found to be the one known."""
        self._following = False

    @property
    def leading(self) -> bool:
        """Whether it decides and takes commands."""
        return self._following and self.damage is None and self.leadership.leads(self.state)

    @property
    def damage(self) -> Damage | None:
        """Why nothing is decided, if the log is not the one that was here before."""
        return self.opener.damage

    def current(self) -> Current:
        """The catalog in force."""
        return self.recovering.current(self.state) or self._catalog.read(self.state)

    def now(self) -> float:
        """The fleet's clock, seconds since 1970."""
        if not self._clock.set:
            return time()  # Shown, and nothing else, before there is a log.
        newest = self.state.newest_control_at
        now = self._clock.read(codec.seconds(newest) if newest else 0.0, monotonic())
        while self._clock.steps:
            log.warning("clock.stepped", seconds=self._clock.steps.pop())
        return now

    @property
    def deciding_fails(self) -> str:
        """Why nothing is decided though this control leads; empty: no such fault."""
        return self._passes.failed if self.leading else ""

    @property
    def not_remembered(self) -> str:
        """Why the disk does not hold how far the log was followed; empty: it does."""
        return self._seen.trouble

    async def perform(self, plan: Plan) -> Frame:
        """Carry out a command in the next turn.

        Raises NotLeading, TooMany, LogRefuses or Failed if it was not taken, OutcomeUnknown if that is not
        known.
        """
        if not self.leading:
            raise NotLeading
        return await self._requests.perform(plan)

    async def prepare(self, make: Callable[[], Plan]) -> Plan:
        """What takes time before a command can be carried out. Raises TooMany, and what `make` raises."""
        return await self._requests.prepare(make)

    @property
    def state_rests(self) -> asyncio.Lock:
        """Held by whoever reads the state beside the event loop, too."""
        return self._passes.state_rests

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ears.run())
                group.create_task(self._beat())
                while True:
                    opened = await self._open()
                    try:
                        await self._follow(opened)
                    finally:
                        self._following = False
                        self._requests.refuse()
        finally:
            await self._resign()

    async def _open(self) -> Opened:
        """Until the log is there and fit to be followed."""
        while True:
            await self.connection.wait_connected()
            link = self.connection.generation
            try:
                opened = await self.opener.open()
            except (Unavailable, ApiError, LogDamaged) as error:
                log.warning("log.not_opened", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Damaged:
                await asyncio.to_thread(CurrentCatalog().read, self.opener.last_read)
                if self.state.sequence == 0:
                    self.state = self.opener.last_read  # Better than nothing to show.
                self.settled.set()
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await asyncio.to_thread(CurrentCatalog().read, opened.state)
                self._looked_over = link
                self.state, self._catalog = opened.state, CurrentCatalog()
                self.ears.opened()
                self.leadership.begin()
                self._passes.begin()
                routing = newest_routing(self.state)
                self.followers.begin(self.state.sequence, routing, monotonic())
                self._clock.heard(opened.server_now, monotonic())
                await self.opener.mended()
                return opened

    async def _follow(self, opened: Opened) -> None:
        """Until the log is damaged, or does not come."""
        try:
            async with asyncio.TaskGroup() as group:
                tail = Tail(self.connection, opened.state.sequence)
                group.create_task(self._read_tail(tail))
                group.create_task(self._watch())
                await tail.caught_up.wait()
                await self._until(lambda: self.state.log_id is not None)
                self._following = True
                group.create_task(self._remember())
                group.create_task(self._checkpoints.run())
                while True:
                    await self._turn()
                    self.settled.set()
                    await self._sleep()
        except* (Damaged, LogDamaged, Stalled) as reasons:
            log.info("log.left", reason=str(reasons.exceptions[0]))

    async def _read_tail(self, tail: Tail) -> None:
        async for batch in tail.batches():
            await self._make_catalog(batch)
            async with self._passes.state_rests:
                for stored in batch:
                    self.state.apply(stored.sequence, stored.subject, stored.payload)
                    self.ears.folded(stored.subject)
            self._newest = (batch[-1].sequence, batch[-1].stamp)
            now = monotonic()
            routing = max((s.sequence for s in batch if is_routing(s.subject)), default=0)
            self.followers.folded(self.state.sequence, routing, now)
            self._clock.heard(batch[-1].stamp, now)
            self._alarm.set()
            async with self._progress:
                self._progress.notify_all()

    async def _make_catalog(self, batch: Sequence[Stored]) -> None:
        """Before a swap is folded: state and catalog change together, and nobody waits for a large one."""
        source = source_ahead(self.state, ((each.subject, each.payload) for each in batch))
        if source is not None:
            await asyncio.to_thread(from_json, source)

    async def folded(self, sequence: int) -> None:
        """Until the state has applied LOG up to `sequence`, which stands there. Raises Stalled."""
        while self.state.sequence < sequence:
            try:
                async with asyncio.timeout(FOLD_SECONDS):
                    await self._until(lambda: self.state.sequence >= sequence)
            except TimeoutError:
                if self.connection.connected:
                    raise Stalled(f"LOG holds {sequence}, {self.state.sequence} has come") from None

    async def _until(self, true: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(true)

    async def _watch(self) -> None:
        """Raises Damaged; Stalled when LOG is ahead and nothing has come for several looks."""
        applied, looks = -1, 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            link = self.connection.generation
            try:
                await self.opener.inspect(self.state)
                newest = await head(self.connection)
            except Unavailable:
                continue  # NATS away is no damage.
            self._looked_over = link
            self.followers.folded(newest, 0, monotonic())
            looks = looks + 1 if applied == self.state.sequence < newest else 0
            applied = self.state.sequence
            if looks >= STALLED_LOOKS:
                raise Stalled(f"LOG ends at {newest}, {applied} has come")

    async def _remember(self) -> None:
        """Not before the log was looked at over this link: what was seen before says what it is."""
        while True:
            log_id = self.state.log_id
            if log_id is not None and self._looked_over == self.connection.generation:
                await self._seen.remember(self._seen_now(log_id))
                if not self.recovering.due(self.state):
                    infos = self.state.infos.values()
                    await self._seen.remember_nodes(frozenset(i.document.node for i in infos))
            await asyncio.sleep(BEAT_SECONDS)

    def _seen_now(self, log_id: LogId) -> Seen:
        before, highest = self._seen.seen, self.state.sequence
        knew = before is not None and before.log == log_id and before.proven
        hearing = self.ears.hearing.measure(monotonic()).hearing_seconds
        proven = knew or hearing >= PROVEN_SECONDS
        if before is not None and (before.log, before.highest) == (log_id, highest):
            return replace(before, proven=proven)
        stamp = self._newest[1] if self._newest[0] == highest else 0.0
        return Seen(log_id, highest, stamp, proven=proven)

    async def _sleep(self) -> None:
        seconds = self._tick_seconds if self.leading else STANDBY_SECONDS
        wake_at = self._passes.wake_at
        if wake_at is not None and self._decides() and not self.recovering.due(self.state):
            seconds = min(seconds, max(0.0, wake_at - self.now()))
        seconds = max(seconds, self._passes.rest())
        try:
            async with asyncio.timeout(seconds):
                await self._alarm.wait()
        except TimeoutError:
            pass
        self._alarm.clear()

    async def _turn(self) -> None:
        self.recovering.beginning.lived(self.state)
        due = self.leadership.should_claim(self.state, self.ears.hearing.since, monotonic())
        if due and self.connection.connected:
            await self.writing.claim(self.opener.inspect)
            await self._say(self.beat())  # Others need not wait for the next one.
        if not self.leading:
            if self.leadership.fence and self.state.fence > self.leadership.fence:
                self.writing.fell("another claim stands in the log")
            self._requests.refuse()
            return
        while self.leading and (request := self._requests.take()) is not None:
            await self._carry_out(request)
        if self._decides():
            if self.recovering.due(self.state):
                await self.recovering.step(lambda: self._passes.make(self.current()))
            elif self._passes.is_due(self.current(), self.now()):
                await self._passes.make(self.current())

    def _decides(self) -> bool:
        return self.leading and self.connection.connected and not self.state.halted()

    async def _carry_out(self, request: Request) -> None:
        envelope = self.writing.envelope()
        planned = self._planned(request, envelope)
        if planned is None:
            return
        try:
            taken = not planned.drafts or await self.writing.write(envelope, planned.drafts)
        except BaseException:
            request.fail(OutcomeUnknown("this control stopped leading while it was being written"))
            raise
        if not taken:
            refused = self.writing.refused
            request.fail(LogRefuses(refused) if refused else NotLeading())
        elif not request.answer.done():
            request.answer.set_result(planned.answer(self.state.sequence))

    def _planned(self, request: Request, envelope: Envelope) -> Planned | None:
        """None: it raised, or no log could take it. That is the command's own end, and nobody else's."""
        try:
            planned = request.plan(Moment(self.state, self.current()))
            for draft in planned.drafts:
                check(envelope.draft(draft))
        except Exception as error:
            log.exception("command.failed")
            request.fail(Failed(f"{type(error).__name__}: {error}"))
            return None
        return planned

    async def _beat(self) -> None:
        """Its sign of life, leading or not."""
        while True:
            self.now()  # Read without a pause, so that only a real step is one.
            await self._say(self.beat())
            await asyncio.sleep(BEAT_SECONDS)

    def beat(self, *, resigned: bool = False) -> ControlBeat | None:
        """What it says of itself now."""
        holds = self._following and self.leadership.holds(self.state) and not self.writing.stuck
        return own_beat(
            self.leadership,
            self.state,
            self._seen.seen,
            self.damage,
            routing=self.followers.routing.newest,
            holding=holds and not resigned,
            resigned=resigned,
        )

    async def _say(self, beat: ControlBeat | None) -> None:
        if beat is not None:
            subject = subjects.control_beat(self.leadership.control)
            await self.connection.publish(subject, codec.encode(beat))

    async def _resign(self) -> None:
        """Nothing is written any more, and another may lead."""
        if self.leadership.leads(self.state):
            with suppress(Unavailable):
                await self._say(self.beat(resigned=True))
                await self.connection.barrier()

    def _heard_control(self, beat: ControlBeat) -> None:
        if beat.log != self.state.log_id:
            return
        now = monotonic()
        self.leadership.heard(beat, now)
        self.followers.folded(beat.head, beat.routing, now)
        if beat.resigned:
            self._alarm.set()
