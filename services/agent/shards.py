"""All shards of the node: one runner each, ordered about by the assignment.

What the assignment holds and no runner knows is started; what it lacks is told so and stops. Without
an assignment everything goes on as the state files say: unknown is not "stop".
"""

import asyncio
from collections.abc import Iterable

import structlog
from msgspec import Struct
from msgspec.structs import replace

from schemas.beats import EngineLoad
from schemas.documents import AssignedShard, Assignment, Session, ShardStatus
from schemas.ids import EventId, ModelName, ReplicaId
from services.agent import clock, sessions, shard
from services.agent.disk import RETRY_SECONDS, Disk
from services.agent.host import Host
from services.agent.reports import Reports
from services.agent.runner import Runner
from services.agent.sessions import Marked
from services.agent.shard import Life
from services.agent.slots import Slots
from services.agent.store import Store
from services.runtime import proc

log = structlog.get_logger()


Standing = dict[str, ShardStatus | None]
"""What the log holds in the node's slots, by their names: None is what this agent cannot read, or
must not act on. Slots are numbers; whoever may write there may have made others."""


class Stranger(Struct, frozen=True):
    """A shard document of this node that no state file knows: the agent's folder was lost."""

    slot: int
    status: ShardStatus


def _claim(life: Life) -> tuple[bool, bool, float]:
    """The greater, the more its slot is its own."""
    alive = life.process is not None and proc.is_alive(life.process.engine)
    return alive, life.phase != "stopped", life.since


def _tells_of(status: ShardStatus, attempt: int, run: int) -> bool:
    """The log has this very run, and it was on its way or serving."""
    return (status.attempt, status.run) == (attempt, run) and status.phase in ("loading", "ready")


class Shards:
    """Every shard of this node, running or not."""

    def __init__(self, store: Store, disk: Disk, reports: Reports) -> None:
        self._store = store
        self._disk = disk
        self._reports = reports
        self._slots = Slots()
        self._runners: dict[ReplicaId, Runner] = {}
        self._tasks: dict[ReplicaId, asyncio.Task[None]] = {}
        self._strangers: dict[ReplicaId, Stranger] = {}
        self._unread: dict[ReplicaId, Marked] = {}
        """Live sessions whose state file cannot be read: the first assignment says what they are."""
        self._wanted: set[ReplicaId] | None = None
        """None: no assignment is known."""
        self._stopped = asyncio.Event()
        """One more has stopped that is wanted no more."""
        self.sessions: tuple[Session, ...] = ()
        """Those that were alive when the agent started."""

    @property
    def lives(self) -> list[Life]:
        """As they are now."""
        return [runner.life for runner in self._runners.values()]

    def loads(self) -> dict[ReplicaId, EngineLoad]:
        """Of those that serve."""
        runners = self._runners.items()
        return {name: each.load for name, each in runners if each.life.phase == "ready"}

    def held(self) -> dict[ReplicaId, ModelName]:
        """What the log must be told of before it decides anything: all that has not stopped."""
        return {life.replica: life.order.model for life in self.lives if life.phase != "stopped"}

    def resume(
        self,
        lives: Iterable[Life],
        host: Host,
        group: asyncio.TaskGroup,
        unread: Iterable[Marked] = (),
    ) -> None:
        """Go on from the state files; `unread`: sessions whose file says nothing."""
        self._unread = {each.replica: each for each in unread}
        of_unread = tuple(
            Session(replica=each.replica, attempt=each.incarnation[0], process=each.leader)
            for each in self._unread.values()
            if each.incarnation is not None
        )
        self.sessions = of_unread + tuple(
            Session(replica=life.replica, attempt=life.order.attempt, process=life.process.engine)
            for life in lives
            if life.process is not None and proc.is_alive(life.process.engine)
        )
        for life in self._apart(lives):
            self._add(life, host, group)

    def _apart(self, lives: Iterable[Life]) -> list[Life]:
        """No two in one slot: it stays with whose engine lives, else with the newest."""
        ranked = sorted(lives, key=_claim, reverse=True)
        moved = [life for life in ranked if not self._slots.keep(life.replica, life.slot)]
        for life in moved:
            log.warning("shard.slot_taken", replica=life.replica, slot=life.slot)
        kept = [life for life in ranked if life not in moved]
        return kept + [replace(life, slot=self._slots.take(life.replica)) for life in moved]

    def meet(self, standing: Standing) -> None:
        """Documents of this node in the log. What is known already is passed over."""
        for slot, status in standing.items():
            if status is not None and status.replica not in self._runners:
                self._meet(Stranger(int(slot), status))

    def _meet(self, stranger: Stranger) -> None:
        """Where a shard that is known has its slot, its document is about to be written over."""
        replica = stranger.status.replica
        if not self._slots.keep(replica, stranger.slot):
            stranger = replace(stranger, slot=self._slots.take(replica))
        self._strangers[replica] = stranger

    def assign(self, assignment: Assignment, host: Host, group: asyncio.TaskGroup) -> None:
        """The full set of what should run here."""
        self._wanted = {order.replica for order in assignment.shards}
        for order in assignment.shards:
            if (runner := self._runners.get(order.replica)) is not None:
                runner.send(shard.Ordered(order))
            elif (found := self._found(order)) is not None:
                self._add(found, host, group)
                self._runners[order.replica].send(shard.Ordered(order))
            elif (life := self._new(order)) is not None:
                self._add(life, host, group)
        for replica, runner in self._runners.items():
            if replica not in self._wanted:
                runner.send(shard.Dropped())
        for replica in list(self._unread):  # Not wanted, or in another attempt.
            group.create_task(sessions.end([self._unread.pop(replica)]))
        for replica in [name for name in self._strangers if name not in self._wanted]:
            self._bury(replica, self._strangers.pop(replica).slot)
            self._slots.free(replica)
        self._stopped.set()  # Some may have stopped before any assignment was known.

    def _found(self, order: AssignedShard) -> Life | None:
        """A session whose state file says nothing, as the log knows it. None: there is no such run."""
        found = self._unread.get(order.replica)
        if found is None or found.incarnation is None or found.incarnation[0] != order.attempt:
            return None
        del self._unread[order.replica]
        run = found.incarnation[1]
        stranger = self._strangers.pop(order.replica, None)
        slot = self._slots.take(order.replica)
        life, _ = shard.begin(replace(order, goal="run"), slot, clock.now(), run)
        if stranger is not None and _tells_of(stranger.status, order.attempt, run):
            life = replace(life, phase=stranger.status.phase)  # Else unpublished for a moment.
        log.warning("shard.found", replica=order.replica, attempt=order.attempt, run=run)
        return life

    def _new(self, order: AssignedShard) -> Life | None:
        """None: it was reported stopped in this attempt, and so never starts again."""
        stranger = self._strangers.get(order.replica)
        run = 0
        if stranger is not None and stranger.status.attempt >= order.attempt:
            if stranger.status.phase == "stopped":
                return None
            run = stranger.status.run + 1
        self._strangers.pop(order.replica, None)
        life, _ = shard.begin(order, self._slots.take(order.replica), clock.now(), run)
        return life

    def _add(self, life: Life, host: Host, group: asyncio.TaskGroup) -> None:
        runner = Runner(life, host)
        self._runners[life.replica] = runner
        self._tasks[life.replica] = group.create_task(runner.run())

    def changed(self, life: Life) -> None:
        """A runner's state is on disk: tell the log, unless its slot is another's by now."""
        if not self._slots.holds(life.replica, life.slot):
            log.warning("shard.slot_lost", replica=life.replica, slot=life.slot)
            return
        self._reports.put(life)
        if life.phase == "stopped" and not life.wanted:
            self._stopped.set()

    def tell_all(self) -> None:
        """A log is trusted anew."""
        for runner in self._runners.values():
            self._tell(runner)

    def _tell(self, runner: Runner) -> None:
        if runner.kept or runner.life.phase != "stopped":
            self.changed(runner.life)

    def check(self, standing: Standing) -> None:
        """What the log holds of this node: where it is not what was told, that is told again.

        Nobody but this agent would ever put right what stands in a slot that no replica has.
        """
        for runner in self._runners.values():
            if self._reports.doubt(runner.life, standing.get(str(runner.life.slot))):
                log.warning("shard.told_again", replica=runner.life.replica)
                self._tell(runner)
        if self._unread:
            return  # Of a live session nobody knows yet which slot it had.
        for slot in standing.keys() - self._slots.used():
            log.warning("slot.cleared", slot=slot)
            self._reports.clear(slot)

    def _bury(self, replica: ReplicaId, slot: int, cause: EventId | None = None) -> None:
        if self._slots.holds(replica, slot):
            self._reports.bury(replica, slot, cause)

    async def retire(self) -> None:
        """Free the slots of what has stopped and is wanted no more. For ever."""
        while True:
            await self._stopped.wait()
            self._stopped.clear()
            if not await self._reports.settled():
                continue  # `tell_all` comes back to it.
            over = [runner.life for runner in self._runners.values() if self._is_over(runner)]
            for life in over:
                self._bury(life.replica, life.slot, life.order.cause)
            if over and await self._reports.settled():
                left = [life.replica for life in over if not self._forget(life.replica)]
                if left:
                    await asyncio.sleep(RETRY_SECONDS)
                    self._stopped.set()

    def _is_over(self, runner: Runner) -> bool:
        life = runner.life
        wanted = self._wanted is None or life.replica in self._wanted
        return runner.kept and life.phase == "stopped" and not life.wanted and not wanted

    def _forget(self, replica: ReplicaId) -> bool:
        """False: its state file is still there, and with it its slot is taken.

        `_is_over` and the removal are one step: between them a save could bring the file back.
        """
        if not self._is_over(self._runners[replica]):
            return True  # Placed here anew meanwhile, in its old slot.
        if not self._disk.keep_now(f"state of {replica}", lambda: self._store.forget(replica)):
            return False
        del self._runners[replica]
        self._tasks.pop(replica).cancel()
        self._slots.free(replica)
        log.info("shard.gone", replica=replica)
        return True

    def in_the_way(self, life: Life) -> ReplicaId | None:
        """Which other shard's live engine uses one of its cards."""
        return shard.holder(life, self.lives)
