"""Life of one shard: what happened to it, what it is now, what to do. Pure.

`step` is a table by phase and event; a pair that is not there changes nothing. The shell
(`services.agent.runner`) carries the actions out and reports what came of them as further events.

    starting ─▶ loading ─▶ ready          Answered: it served a real request
       ▲           │         │
       │ retry_at  ▼         ▼
       └──────── failed ◀────┘            Exited or Refused while it should run
                   │
    any ───▶ stopping ───▶ stopped        Dropped, a drain's end, a newer attempt

What must hold:
- An engine has exited only when no process of its session is left, so a new one never meets the old.
- A (replica, attempt) that is stopped never starts again; a newer attempt does.
- An error stays from the first failure to the next good start.

What is waited for is measured on the machine's steady clock, which no correction of the date moves and
which all agents of one boot share, so that a wait goes on over a restart of the agent. Under another
boot no engine is left that was waited for (`parked`). Only what outlives a boot or is shown (`since`,
`retry_at`) is in seconds since 1970.
"""

import random  # noqa: TID251 - for its type.
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from schemas import codec
from schemas.documents import (
    AssignedShard,
    LastError,
    ProcessIdentity,
    Progress,
    RestartPolicy,
    ShardPhase,
    ShardStatus,
)
from schemas.ids import NodeId, ReplicaId
from services.fleet.restarts import forgotten, pause

IDLE_LOOKS = 2
"""Scrapes in a row without a request that end a drain; one lies a second after the other."""


class Moment(Struct, frozen=True):
    """Now, on both clocks."""

    wall: float
    """Seconds since 1970: may be wrong, may be set."""
    steady: float
    """Seconds of CLOCK_MONOTONIC: only their differences mean something, within one boot."""


class Process(Struct, frozen=True):
    """A started engine. The leader is the shim, whose pid is the session's id."""

    leader: ProcessIdentity
    engine: ProcessIdentity


class Life(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One shard, whole: this is also what its state file holds."""

    order: AssignedShard
    """What this attempt was last told."""
    slot: int
    """Of the node's shard documents."""
    phase: ShardPhase = "starting"
    since: float
    run: int = 0
    process: Process | None = None
    engine_version: str = ""
    log_start: int = 0
    """Where this run begins in the engine's log file, in bytes."""
    secrets_seal: str = ""
    """Tells a later agent whether the secrets it finds are those of this run."""
    progress: Progress | None = None
    moved_at: float = 0.0
    """When a load last showed a step, a percent or a byte; steady."""
    failures: int = 0
    retry_at: float | None = None
    error: LastError | None = None
    condemned: LastError | None = None
    """Why it is being killed although it should run."""
    wanted: bool = True
    """It stands in the assignment."""
    successor: AssignedShard | None = None
    """A newer attempt, which starts when this one is gone."""
    drain_since: float | None = None
    """When its drain was first obeyed; steady."""
    idle_looks: int = 0
    kill_at: float | None = None
    """Steady."""
    exit_code: int | None = None

    @property
    def replica(self) -> ReplicaId:
        return self.order.replica


class Ordered(Struct, frozen=True):
    """The assignment holds it."""

    order: AssignedShard


class Dropped(Struct, frozen=True):
    """The assignment does not hold it."""


class Started(Struct, frozen=True):
    """The engine's process is there."""

    process: Process
    engine_version: str
    log_start: int
    secrets_seal: str = ""


class Refused(Struct, frozen=True):
    """It was not started."""

    error: LastError


class Moved(Struct, frozen=True):
    """A load showed a sign of progress; `progress` None: bytes alone."""

    progress: Progress | None


class Answered(Struct, frozen=True):
    """The right model answered a real request, from this very process."""


class Unhealthy(Struct, frozen=True):
    """Its process lives and serves nobody."""

    error: LastError


class Exited(Struct, frozen=True):
    """No process of its session is left."""

    error: LastError


class Looked(Struct, frozen=True):
    """One scrape; `busy` None: it could not be told."""

    busy: bool | None


class Ticked(Struct, frozen=True):
    """Time has passed."""


Event: TypeAlias = (
    Ordered | Dropped | Started | Refused | Moved | Answered | Unhealthy | Exited | Looked | Ticked
)
Action = Literal["start", "terminate", "kill"]
"""`terminate` tells the engine alone, `kill` its whole session."""


class Rules(Struct, frozen=True):
    """What the steps need beside life and event."""

    now: Moment
    source: random.Random
    kill_while_loading: bool
    stop_grace_seconds: float


Outcome: TypeAlias = tuple[Life, tuple[Action, ...]]


def begin(order: AssignedShard, slot: int, now: Moment, run: int = 0) -> Outcome:
    """A shard that this node has not run before, or not in this attempt."""
    life = Life(order=order, slot=slot, since=now.wall, run=run, moved_at=now.steady)
    return (life, ("start",)) if order.goal == "run" else _stopped(life, now)


def step(life: Life, event: Event, rules: Rules) -> Outcome:
    """What becomes of the shard, and what to do for it."""
    match life.phase:
        case "starting" | "loading":
            return _while_loading(life, event, rules)
        case "ready":
            return _while_ready(life, event, rules)
        case "failed":
            return _while_failed(life, event, rules)
        case "stopping":
            return _while_stopping(life, event, rules)
        case "stopped":
            return _while_stopped(life, event, rules)


def holder(life: Life, others: Iterable[Life]) -> ReplicaId | None:
    """Whose live engine uses one of its cards, whatever the assignment says; None: nobody's."""
    cards = set(life.order.launch.gpus)
    for other in others:
        alive = other.process is not None and other.replica != life.replica
        if alive and cards & set(other.order.launch.gpus):
            return other.replica
    return None


def adopted(life: Life, process: Process, engine_version: str, now: Moment) -> Life:
    """A new agent watches its engine. While none did, nobody saw whether its load moved."""
    version = engine_version if life.process is None else life.engine_version
    return replace(life, process=process, engine_version=version, moved_at=now.steady)


def parked(life: Life, now: Moment) -> Life:
    """Its engine ended with the agent or the machine, not by itself: it starts again with them."""
    if life.phase in ("failed", "stopped"):
        return life
    if life.phase == "stopping" or life.order.goal == "drain":
        stopped, _ = _stopped(replace(life, successor=None), now)
        return stopped
    again, _ = _start_again(replace(life, process=None, condemned=None), now)
    return again


def due_in(life: Life, now: Moment) -> float | None:
    """Seconds until time alone may change something, 0 or less: it may now; None: it never does."""
    waits: list[float | None] = []
    match life.phase:
        case "failed":
            waits = [_until(life.retry_at, now.wall)]
        case "starting" | "loading":
            stall = None if life.condemned else life.order.launch.stall_seconds
            waits = [_until(_after(life.moved_at, stall), now.steady)]
        case "ready":
            policy = life.order.launch.restart if life.failures else None
            healthy = _after(life.since, policy.healthy_seconds if policy else None)
            waits = [_until(healthy, now.wall), _until(_drain_end(life), now.steady)]
        case "stopping":
            waits = [_until(life.kill_at, now.steady)]
        case "stopped":
            pass
    return min((wait for wait in waits if wait is not None), default=None)


def _until(time: float | None, now: float) -> float | None:
    return None if time is None else time - now


def _after(time: float | None, seconds: float | None) -> float | None:
    """None: never."""
    return None if time is None or seconds is None else time + seconds


def report(life: Life, node: NodeId, incarnation: str) -> ShardStatus:
    """The shard's document."""
    order = life.order
    return ShardStatus(
        node=node,
        replica=order.replica,
        model=order.model,
        rank=order.launch.rank,
        phase=life.phase,
        attempt=order.attempt,
        run=life.run,
        gpus=order.launch.gpus,
        process=life.process.engine if life.process else None,
        port=order.launch.port,
        rendezvous_port=order.launch.rendezvous_port,
        engine=order.launch.engine,
        engine_version=life.engine_version,
        since=codec.rfc3339(life.since),
        progress=life.progress,
        failures=life.failures,
        retry_at=None if life.retry_at is None else codec.rfc3339(life.retry_at),
        error=life.error,
        exit_code=life.exit_code,
        incarnation=incarnation,
    )


def _enter(life: Life, phase: ShardPhase, now: Moment) -> Life:
    """`retry_at`, `condemned` and the like belong to one phase and end with it."""
    return replace(
        life,
        phase=phase,
        since=now.wall,
        progress=None,
        moved_at=now.steady,
        retry_at=None,
        kill_at=None,
        idle_looks=0,
    )


def _stopped(life: Life, now: Moment) -> Outcome:
    if (successor := life.successor) is not None and life.wanted:
        return begin(successor, life.slot, now)
    gone = replace(life, process=None, successor=None, condemned=None)
    return _enter(gone, "stopped", now), ()


def _fail(life: Life, error: LastError, rules: Rules) -> Outcome:
    failures = life.failures + 1
    policy = life.order.launch.restart
    failed = replace(
        _enter(life, "failed", rules.now),
        process=None,
        condemned=None,
        failures=failures,
        error=error,
        retry_at=_retry_at(policy, error, failures, rules),
    )
    return failed, ()


def _retry_at(
    policy: RestartPolicy | None, error: LastError, failures: int, rules: Rules
) -> float | None:
    if policy is None or error.permanent:
        return None
    return rules.now.wall + pause(policy, failures, rules.source)


def _start_again(life: Life, now: Moment) -> Outcome:
    again = replace(_enter(life, "starting", now), run=life.run + 1, exit_code=None)
    return again, ("start",)


def _stop(life: Life, rules: Rules) -> Outcome:
    stopping = _enter(life, "stopping", rules.now)
    if life.phase != "ready" and rules.kill_while_loading:
        return replace(stopping, kill_at=rules.now.steady), ("kill",)
    kill_at = rules.now.steady + rules.stop_grace_seconds
    return replace(stopping, kill_at=kill_at), ("terminate",)


def _while_loading(life: Life, event: Event, rules: Rules) -> Outcome:
    match event:
        case Ordered(order):
            return _ordered_alive(life, order, rules)
        case Dropped():
            return _stop(replace(life, wanted=False), rules)
        case Started():
            return _started(life, event, rules.now), ()
        case Refused(error):
            return _fail(life, error, rules)
        case Moved(progress):
            return _moved(life, progress, rules.now), ()
        case Answered() if life.condemned is None:
            return replace(_enter(life, "ready", rules.now), error=None), ()
        case Unhealthy(error):
            return _condemn(life, error)
        case Exited(error):
            return _exited(life, error, rules)
        case Ticked():
            return _stalled(life, rules.now.steady)
        case _:
            return life, ()


def _while_ready(life: Life, event: Event, rules: Rules) -> Outcome:
    match event:
        case Ordered(order):
            return _ordered_alive(life, order, rules)
        case Dropped():
            return _stop(replace(life, wanted=False), rules)
        case Unhealthy(error):
            return _condemn(life, error)
        case Exited(error):
            return _exited(life, error, rules)
        case Looked(busy) if life.order.goal == "drain":
            return _looked(life, rules, busy=busy)
        case Ticked():
            return _served_on(life, rules)
        case _:
            return life, ()


def _while_failed(life: Life, event: Event, rules: Rules) -> Outcome:
    match event:
        case Ordered(order):
            return _ordered_failed(life, order, rules.now)
        case Dropped():
            return _stopped(replace(life, wanted=False), rules.now)
        case Ticked() if _is_due(life, rules.now.wall):
            return _start_again(life, rules.now)
        case _:
            return life, ()


def _while_stopping(life: Life, event: Event, rules: Rules) -> Outcome:
    match event:
        case Ordered(order):
            newer = order if order.attempt > life.order.attempt else None
            return replace(life, wanted=True, successor=newer), ()
        case Dropped():
            return replace(life, wanted=False, successor=None), ()
        case Exited(error):
            return _stopped(replace(life, exit_code=error.exit_code), rules.now)
        case Ticked() if life.kill_at is not None and rules.now.steady >= life.kill_at:
            return replace(life, kill_at=None), ("kill",)
        case _:
            return life, ()


def _while_stopped(life: Life, event: Event, rules: Rules) -> Outcome:
    match event:
        case Ordered(order) if order.attempt > life.order.attempt:
            return _next_attempt(life, order, rules.now)
        case Ordered():
            return replace(life, wanted=True), ()
        case Dropped():
            return replace(life, wanted=False), ()
        case _:
            return life, ()


def _ordered_alive(life: Life, order: AssignedShard, rules: Rules) -> Outcome:
    """Another launch of the same attempt changes nothing that runs."""
    if order.attempt > life.order.attempt:
        return _stop(replace(life, wanted=True, successor=order), rules)
    if order.attempt < life.order.attempt:
        return life, ()
    told = replace(
        life,
        wanted=True,
        order=replace(order, launch=life.order.launch),
        drain_since=_drain_since(life, order, rules.now),
    )
    if order.goal == "drain" and life.phase != "ready":
        return _stop(told, rules)  # It serves nobody yet.
    if order.goal != life.order.goal:
        told = replace(told, idle_looks=0)
    return told, ()


def _drain_since(life: Life, order: AssignedShard, now: Moment) -> float | None:
    if order.goal != "drain":
        return None
    return now.steady if life.drain_since is None else life.drain_since


def _ordered_failed(life: Life, order: AssignedShard, now: Moment) -> Outcome:
    if order.attempt > life.order.attempt:
        return _next_attempt(life, order, now)
    if order.attempt < life.order.attempt:
        return life, ()
    told = replace(life, wanted=True, order=order)
    if order.goal == "drain":
        return _stopped(told, now)
    if order.launch != life.order.launch:
        return _start_again(replace(told, failures=0), now)
    return told, ()


def _next_attempt(life: Life, order: AssignedShard, now: Moment) -> Outcome:
    """The last error stays until this attempt starts well."""
    fresh, actions = begin(order, life.slot, now)
    return replace(fresh, error=life.error), actions


def _started(life: Life, started: Started, now: Moment) -> Life:
    return replace(
        life,
        process=started.process,
        engine_version=started.engine_version,
        log_start=started.log_start,
        secrets_seal=started.secrets_seal,
        moved_at=now.steady,
    )


def _moved(life: Life, progress: Progress | None, now: Moment) -> Life:
    if progress is None or progress == life.progress:
        return replace(life, moved_at=now.steady)
    loading = life if life.phase == "loading" else _enter(life, "loading", now)
    return replace(loading, progress=progress, moved_at=now.steady)


def _condemn(life: Life, error: LastError) -> Outcome:
    return replace(life, condemned=life.condemned or error), ("kill",)


def _exited(life: Life, error: LastError, rules: Rules) -> Outcome:
    ended = replace(life, exit_code=error.exit_code)
    if life.order.goal == "drain":
        return _stopped(replace(ended, error=error), rules.now)
    if life.condemned is not None:
        error = replace(life.condemned, exit_code=error.exit_code, log=error.log)
    return _fail(ended, error, rules)


def _looked(life: Life, rules: Rules, *, busy: bool | None) -> Outcome:
    looks = life.idle_looks + 1 if busy is False else 0
    drained = replace(life, idle_looks=looks)
    return _stop(drained, rules) if looks >= IDLE_LOOKS else (drained, ())


def _is_due(life: Life, now: float) -> bool:
    if life.retry_at is None:
        return False
    policy = life.order.launch.restart or RestartPolicy()
    clock_was_set_back = life.retry_at - now > 2 * policy.longest_seconds
    return now >= life.retry_at or clock_was_set_back


def _stalled(life: Life, now: float) -> Outcome:
    stall = life.order.launch.stall_seconds
    if stall is None or life.condemned is not None or now < life.moved_at + stall:
        return life, ()
    at = f" ({life.progress.step})" if life.progress else ""
    message = f"no step, percent or byte for {stall:g} s while {life.phase}{at}"
    return _condemn(life, LastError(failure="start_timeout", message=message))


def _served_on(life: Life, rules: Rules) -> Outcome:
    end = _drain_end(life)
    if end is not None and rules.now.steady >= end:
        return _stop(life, rules)
    policy = life.order.launch.restart
    if policy is not None and forgotten(policy, rules.now.wall - life.since):
        return replace(life, failures=0), ()
    return life, ()


def _drain_end(life: Life) -> float | None:
    """Steady; None: it waits for its requests for ever, or does not drain."""
    return _after(life.drain_since, life.order.grace_seconds)
