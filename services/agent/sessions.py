"""Engine sessions of this agent on the machine, by the marks in their environment.

Used at the start, to find what no state file knows, and to stop everything.
"""

import asyncio
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

import structlog
from msgspec import Struct

from schemas.documents import ProcessIdentity
from schemas.ids import ReplicaId, token
from services.agent import process
from services.agent.engines.table import ADAPTERS
from services.agent.shard import Life, Moment, parked
from services.agent.store import Store
from services.runtime import proc

log = structlog.get_logger()

ORPHAN_GRACE_SECONDS = 5.0


class Marked(Struct, frozen=True):
    """One session of ours."""

    leader: ProcessIdentity
    mark: dict[str, str]

    @property
    def replica(self) -> ReplicaId:
        return ReplicaId(self.mark[process.REPLICA])

    @property
    def incarnation(self) -> tuple[int, int] | None:
        """Attempt and run; None: it does not say."""
        attempt, _, run = self.mark[process.INCARNATION].partition(".")
        return (int(attempt), int(run)) if attempt.isdigit() and run.isdigit() else None


def marked(store: Store) -> list[Marked]:
    """Every live session that was started under this data folder."""
    boot, found = proc.boot_id(), dict[int, Marked]()
    for each in proc.everybody():
        environ = proc.environ(each.pid)
        if environ.get(process.AGENT) != str(store.data):
            continue
        names = (process.REPLICA, process.INCARNATION, process.AGENT)
        gone = ProcessIdentity(boot_id=boot, pid=each.session, start_ticks=0)
        leader = proc.identify(each.session) or gone
        found[each.session] = Marked(leader, {name: environ.get(name, "") for name in names})
    return list(found.values())


def orphans(store: Store, lives: Iterable[Life]) -> list[Marked]:
    """Sessions that no state file knows."""
    known = [process.mark(life, store.data) for life in lives]
    return [each for each in marked(store) if each.mark not in known]


def apart(store: Store, found: Iterable[Marked]) -> tuple[list[Marked], list[Marked]]:
    """Those whose state file is there and cannot be read, and all others.

    The first are no orphans: the next assignment says what they are.
    """
    all_, unread = list(found), list[Marked]()
    for each in all_:
        if token(each.replica) in store.unread and each.incarnation is not None:
            unread.append(each)
    return unread, [each for each in all_ if each not in unread]


async def end(sessions: Iterable[Marked], grace_seconds: float = ORPHAN_GRACE_SECONDS) -> None:
    """Returns once none of their processes is left."""
    async with asyncio.TaskGroup() as group:
        for each in sessions:
            log.warning("shard.orphan", replica=each.mark[process.REPLICA], pid=each.leader.pid)
            group.create_task(_stop(each.leader, each.mark, grace_seconds))


async def stop_all(store: Store, now: Moment, grace_seconds: float) -> int:
    """End every engine of this data folder, so that a later agent starts them again. How many it were."""
    running = [life for life in store.load() if life.process is not None]
    lost = await asyncio.to_thread(orphans, store, running)  # Also a start that no state file saw.
    async with asyncio.TaskGroup() as group:
        group.create_task(end(lost, grace_seconds))
        for life in running:
            group.create_task(_park(store, life, now, grace_seconds))
    return len(running) + len(lost)


def still_there(found: Marked) -> str:
    """What keeps it, for whoever has to end it by hand."""
    left = proc.members(found.leader, found.mark)
    pids = ", ".join(f"pid {each.pid} (state {each.state})" for each in left)
    stuck = any(each.state == "D" for each in left)
    waits = "; state D waits in the kernel for a device, and no signal reaches it" if stuck else ""
    return f"TERM and KILL did not end {pids}{waits}" if pids else "it ended only now"


async def _park(store: Store, life: Life, now: Moment, grace_seconds: float) -> None:
    if life.process is not None:
        grace = min(grace_seconds, ADAPTERS[life.order.launch.kind].stop_grace_seconds)
        await _stop(life.process.leader, process.mark(life, store.data), grace)
    try:
        store.save(parked(life, now))
    except OSError as error:  # The next agent takes it for one that was killed.
        log.warning("shard.not_parked", replica=life.replica, reason=str(error))


async def _stop(leader: ProcessIdentity, mark: Mapping[str, str], grace_seconds: float) -> None:
    """SIGTERM, which the shim hands on; what is left after the grace is killed."""
    proc.send(leader, signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_seconds):
            await process.ended(leader)
    await process.kill_session(leader, mark)
