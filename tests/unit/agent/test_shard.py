"""The life of a shard, event by event."""

import itertools
import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import codec
from schemas.documents import (
    AssignedShard,
    LastError,
    LaunchSpec,
    ProcessIdentity,
    Progress,
    RestartPolicy,
    ShardPhase,
)
from schemas.ids import EngineName, GpuUuid, ModelName, NodeId, ReplicaId
from services.agent.shard import (
    Action,
    Answered,
    Dropped,
    Event,
    Exited,
    Life,
    Looked,
    Moment,
    Moved,
    Ordered,
    Process,
    Refused,
    Rules,
    Started,
    Ticked,
    Unhealthy,
    adopted,
    begin,
    due_in,
    holder,
    parked,
    report,
    step,
)

LAUNCH = LaunchSpec(
    engine=EngineName("llamacpp"),
    kind="llamacpp",
    source="/m.gguf",
    served_name=ModelName("tiny"),
    gpus=(GpuUuid("GPU-1"),),
    host="127.0.0.1",
    port=17000,
)
ORDER = AssignedShard(
    replica=ReplicaId("tiny-0-1"), model=ModelName("tiny"), attempt=1, goal="run", launch=LAUNCH
)
DRAIN = replace(ORDER, goal="drain", grace_seconds=400.0)
LEADER = ProcessIdentity(boot_id="boot", pid=10, start_ticks=1)
ENGINE = ProcessIdentity(boot_id="boot", pid=11, start_ticks=2)
STARTED = Started(Process(leader=LEADER, engine=ENGINE), "1.0", 0)
CRASH = LastError(failure="killed", message="killed by SIGKILL", exit_code=-9)
NO_MODEL = LastError(failure="model_not_found", message="no such file", permanent=True)
CLEAN = LastError(failure="unknown", message="", exit_code=0)


def at(now: float) -> Moment:
    """Both clocks go alike where a test does not say otherwise."""
    return Moment(now, now)


def rules(now: float = 100.0, *, kill_while_loading: bool = False) -> Rules:
    return Rules(at(now), random.Random(1), kill_while_loading, 8.0)


def lived(*events: Event, life: Life | None = None, now: float = 100.0) -> Life:
    """What becomes of a new shard after the events."""
    current = life if life is not None else begin(ORDER, 0, at(now))[0]
    for event in events:
        current, _ = step(current, event, rules(now))
    return current


def acted(life: Life, event: Event, now: float = 100.0) -> tuple[ShardPhase, tuple[Action, ...]]:
    after, actions = step(life, event, rules(now))
    return after.phase, actions


READY = lived(STARTED, Answered())
LOADING = lived(STARTED, Moved(Progress(step="reading")))
FAILED = lived(STARTED, Exited(CRASH))
STOPPING = lived(STARTED, Answered(), Dropped())
STOPPED = lived(STARTED, Answered(), Dropped(), Exited(CLEAN))


def test_begins_with_a_start() -> None:
    life, actions = begin(ORDER, 3, at(100.0))
    assert (life.phase, life.run, life.slot, actions) == ("starting", 0, 3, ("start",))


def test_a_drain_of_what_never_ran_is_over_at_once() -> None:
    life, actions = begin(DRAIN, 0, at(100.0))
    assert (life.phase, actions) == ("stopped", ())


def test_goes_from_starting_over_loading_to_ready() -> None:  # spec: A3
    assert LOADING.phase == "loading"
    assert LOADING.progress == Progress(step="reading")
    assert lived(Answered(), life=LOADING).phase == "ready"


def test_bytes_alone_show_progress_without_a_phase() -> None:  # spec: R6
    moved = lived(Moved(None), life=lived(STARTED), now=150.0)
    assert (moved.phase, moved.moved_at) == ("starting", 150.0)


def test_a_crash_is_started_again_after_a_pause() -> None:  # spec: R6
    assert (FAILED.phase, FAILED.failures, FAILED.error) == ("failed", 1, CRASH)
    assert FAILED.retry_at is not None
    assert 100.8 <= FAILED.retry_at <= 101.2
    assert acted(FAILED, Ticked(), 100.1) == ("failed", ())
    assert acted(FAILED, Ticked(), 102.0) == ("starting", ("start",))
    assert lived(Ticked(), life=FAILED, now=102.0).run == 1


def test_pauses_grow_while_it_fails() -> None:  # spec: R6
    again = lived(Ticked(), STARTED, Exited(CRASH), life=FAILED, now=102.0)
    assert again.failures == 2
    assert again.retry_at is not None
    assert 103.6 <= again.retry_at <= 104.4


def test_a_clock_set_back_does_not_put_a_restart_off_for_years() -> None:
    assert acted(FAILED, Ticked(), -1e9) == ("starting", ("start",))


def test_a_permanent_cause_waits_for_another_launch() -> None:  # spec: R6
    stuck = lived(Refused(NO_MODEL))
    assert (stuck.phase, stuck.retry_at) == ("failed", None)
    assert acted(stuck, Ticked(), 1e9) == ("failed", ())
    assert acted(stuck, Ordered(ORDER), 1e9) == ("failed", ())
    other = replace(ORDER, launch=replace(LAUNCH, source="/other.gguf"))
    after, actions = step(stuck, Ordered(other), rules())
    assert (after.phase, after.run, after.failures, actions) == ("starting", 1, 0, ("start",))


def test_a_gang_is_started_again_by_control_alone() -> None:  # spec: R6
    gang = replace(ORDER, launch=replace(LAUNCH, restart=None))
    failed = lived(STARTED, Exited(CRASH), life=begin(gang, 0, at(100.0))[0])
    assert failed.retry_at is None
    assert acted(failed, Ticked(), 1e9) == ("failed", ())


def test_the_error_stays_until_the_next_good_start() -> None:  # spec: A3
    again = lived(Ticked(), STARTED, Moved(Progress(step="x")), life=FAILED, now=102.0)
    assert again.error == CRASH
    assert lived(Answered(), life=again).error is None


def test_failures_are_forgotten_after_ten_minutes_healthy() -> None:  # spec: R6
    again = lived(Ticked(), STARTED, Answered(), life=FAILED, now=102.0)
    assert again.failures == 1
    assert due_in(again, at(102.0)) == 600.0
    assert lived(Ticked(), life=again, now=701.0).failures == 1
    assert lived(Ticked(), life=again, now=702.0).failures == 0


def test_a_stop_tells_the_engine_and_then_kills_its_session() -> None:  # spec: A2
    assert acted(READY, Dropped()) == ("stopping", ("terminate",))
    assert due_in(STOPPING, at(100.0)) == 8.0
    assert acted(STOPPING, Ticked(), 107.9) == ("stopping", ())
    killing, actions = step(STOPPING, Ticked(), rules(108.0))
    assert (killing.phase, actions) == ("stopping", ("kill",))
    assert due_in(killing, at(100.0)) is None


def test_a_load_that_may_ignore_a_stop_is_killed_at_once() -> None:
    after, actions = step(LOADING, Dropped(), rules(kill_while_loading=True))
    assert (after.phase, actions) == ("stopping", ("kill",))
    _, actions = step(READY, Dropped(), rules(kill_while_loading=True))
    assert actions == ("terminate",)


def test_what_was_stopped_never_starts_again_in_that_attempt() -> None:
    assert STOPPED.phase == "stopped"
    for event in (Ordered(ORDER), Ticked(), Dropped(), STARTED, Answered()):
        assert acted(STOPPED, event, 1e9) == ("stopped", ())


def test_a_newer_attempt_starts_when_the_old_one_is_gone() -> None:
    newer = replace(ORDER, attempt=2)
    assert acted(STOPPED, Ordered(newer)) == ("starting", ("start",))
    assert acted(FAILED, Ordered(newer)) == ("starting", ("start",))
    stopping, actions = step(READY, Ordered(newer), rules())
    assert (stopping.phase, actions) == ("stopping", ("terminate",))
    assert report(stopping, NodeId("n"), "a").attempt == 1
    after, actions = step(stopping, Exited(CLEAN), rules())
    assert (after.phase, after.order, after.run, actions) == ("starting", newer, 0, ("start",))


def test_a_newer_attempt_waits_for_a_stop_under_way() -> None:
    newer = replace(ORDER, attempt=2)
    after, actions = step(lived(Ordered(newer), life=STOPPING), Exited(CLEAN), rules())
    assert (after.order, actions) == (newer, ("start",))


def test_the_error_stays_over_attempts_too() -> None:  # spec: A3
    newer = lived(Ordered(replace(ORDER, attempt=2)), life=FAILED)
    assert (newer.error, newer.failures) == (CRASH, 0)
    assert lived(STARTED, Answered(), life=newer).error is None


def test_a_newer_attempt_that_is_dropped_meanwhile_does_not_start() -> None:
    newer = replace(ORDER, attempt=2)
    after = lived(Ordered(newer), Dropped(), Exited(CLEAN), life=READY)
    assert after.phase == "stopped"


def test_an_older_attempt_is_nobodys_order() -> None:
    newer = begin(replace(ORDER, attempt=2), 0, at(100.0))[0]
    for life in (lived(STARTED, Answered(), life=newer), lived(Refused(CRASH), life=newer)):
        assert step(life, Ordered(ORDER), rules()) == (life, ())


def test_another_launch_of_the_same_attempt_disturbs_nothing_that_runs() -> None:
    other = replace(ORDER, launch=replace(LAUNCH, source="/other.gguf"))
    after, actions = step(READY, Ordered(other), rules())
    assert (after.order.launch, actions) == (LAUNCH, ())


def test_a_drain_ends_after_two_idle_looks() -> None:  # spec: R7
    draining = lived(Ordered(DRAIN), life=READY)
    assert draining.phase == "ready"
    for busy in (False, True, False, None, False):
        draining = lived(Looked(busy), life=draining)
        assert draining.phase == "ready"
    assert acted(draining, Looked(busy=False)) == ("stopping", ("terminate",))


def test_looks_from_before_the_drain_do_not_count() -> None:  # spec: R7
    idle = lived(Looked(busy=False), Looked(busy=False), Ordered(DRAIN), life=READY)
    assert acted(idle, Looked(busy=False)) == ("ready", ())


def test_looks_of_a_drain_called_off_do_not_count_for_the_next() -> None:  # spec: R7
    again = lived(Ordered(DRAIN), Looked(busy=False), Ordered(ORDER), Ordered(DRAIN), life=READY)
    assert acted(again, Looked(busy=False)) == ("ready", ())


def test_the_same_order_again_delays_no_drain() -> None:  # spec: R7
    again = lived(Ordered(DRAIN), Looked(busy=False), Ordered(DRAIN), life=READY)
    assert acted(again, Looked(busy=False)) == ("stopping", ("terminate",))


def test_a_drain_ends_at_its_deadline() -> None:  # spec: R5
    draining = lived(Ordered(DRAIN), life=READY)
    assert due_in(draining, at(200.0)) == 300.0
    assert acted(draining, Ticked(), 499.9) == ("ready", ())
    assert acted(draining, Ticked(), 500.0) == ("stopping", ("terminate",))


def test_no_clock_that_is_set_ends_a_drain_or_a_load() -> None:  # spec: R5 R6
    years_on = replace(rules(), now=Moment(wall=2e9, steady=101.0))
    draining, _ = step(READY, Ordered(DRAIN), rules())
    assert step(draining, Ticked(), years_on)[0].phase == "ready"
    assert due_in(draining, years_on.now) == 399.0
    assert step(LOADING, Ticked(), years_on) == (LOADING, ())
    assert step(STOPPING, Ticked(), years_on) == (STOPPING, ())


def test_a_drain_counts_from_when_it_was_first_obeyed() -> None:  # spec: R5
    draining = lived(Ordered(DRAIN), life=READY)
    again = lived(Ordered(DRAIN), life=draining, now=300.0)  # As after a restart of the agent.
    assert due_in(again, at(300.0)) == 200.0
    longer = lived(Ordered(replace(DRAIN, grace_seconds=1000.0)), life=again, now=300.0)
    assert due_in(longer, at(300.0)) == 800.0
    restored = codec.decode(codec.encode(draining), Life)
    assert due_in(restored, at(300.0)) == 200.0
    anew = lived(Ordered(ORDER), Ordered(DRAIN), life=draining, now=300.0)
    assert due_in(anew, at(300.0)) == 400.0


def test_a_load_is_not_blamed_for_the_time_without_an_agent() -> None:  # spec: R6
    process = STARTED.process
    found = adopted(LOADING, process, "another", at(5000.0))
    assert (found.phase, found.process, found.engine_version) == ("loading", process, "1.0")
    assert due_in(found, at(5000.0)) == 600.0
    unseen = adopted(begin(ORDER, 0, at(100.0))[0], process, "1.0", at(5000.0))
    assert (unseen.process, unseen.engine_version) == (process, "1.0")


def test_a_drain_without_a_deadline_waits_for_ever() -> None:  # spec: R5
    draining = lived(Ordered(replace(DRAIN, grace_seconds=None)), life=READY)
    assert due_in(draining, at(100.0)) is None
    assert acted(draining, Ticked(), 1e12) == ("ready", ())


def test_a_drain_can_be_called_off() -> None:  # spec: R5
    back = lived(Ordered(DRAIN), Looked(busy=False), Ordered(ORDER), life=READY)
    assert acted(back, Looked(busy=False)) == ("ready", ())
    assert due_in(back, at(100.0)) is None


def test_a_crash_while_draining_is_the_end() -> None:
    assert lived(Ordered(DRAIN), Exited(CRASH), life=READY).phase == "stopped"


def test_a_drain_ends_what_serves_nobody() -> None:
    assert acted(LOADING, Ordered(DRAIN)) == ("stopping", ("terminate",))
    assert acted(FAILED, Ordered(DRAIN)) == ("stopped", ())


def test_a_load_without_a_sign_is_killed_and_fails() -> None:  # spec: R6
    assert due_in(LOADING, at(100.0)) == 600.0
    assert acted(LOADING, Ticked(), 699.0) == ("loading", ())
    condemned, actions = step(LOADING, Ticked(), rules(700.0))
    assert (condemned.phase, actions) == ("loading", ("kill",))
    assert due_in(condemned, at(100.0)) is None
    failed = lived(Exited(CRASH), life=condemned)
    assert failed.error is not None
    assert (failed.phase, failed.error.failure) == ("failed", "start_timeout")


def test_slow_is_not_stalled_and_off_is_never() -> None:  # spec: R6
    moved = lived(Moved(None), life=LOADING, now=650.0)
    assert acted(moved, Ticked(), 700.0) == ("loading", ())
    never = replace(ORDER, launch=replace(LAUNCH, stall_seconds=None))
    life = lived(STARTED, life=begin(never, 0, at(100.0))[0])
    assert due_in(life, at(100.0)) is None
    assert acted(life, Ticked(), 1e12) == ("starting", ())


def test_what_is_condemned_does_not_become_ready() -> None:
    condemned, _ = step(LOADING, Ticked(), rules(700.0))
    assert lived(Answered(), life=condemned).phase == "loading"


def test_a_living_process_that_serves_nobody_is_killed_and_restarted() -> None:
    dead = LastError(failure="engine_dead", message="serves nobody")
    condemned, actions = step(READY, Unhealthy(dead), rules())
    assert actions == ("kill",)
    failed = lived(Exited(replace(CRASH, log="last words")), life=condemned)
    assert failed.phase == "failed"
    assert failed.error == replace(dead, exit_code=-9, log="last words")


def test_a_card_is_held_by_whoevers_engine_lives_on_it() -> None:  # spec: P5
    newer = begin(replace(ORDER, replica=ReplicaId("tiny-0-2")), 1, at(100.0))[0]
    assert holder(newer, [newer, READY]) == READY.replica
    assert holder(newer, [newer, STOPPING]) == STOPPING.replica
    assert holder(newer, [newer, STOPPED, FAILED]) is None
    assert holder(READY, [READY]) is None
    elsewhere = replace(
        ORDER, replica=ReplicaId("b-0-1"), launch=replace(LAUNCH, gpus=(GpuUuid("GPU-2"),))
    )
    assert holder(begin(elsewhere, 1, at(100.0))[0], [replace(READY)]) is None


def test_parked_starts_again_without_a_failure() -> None:  # spec: O7
    again = parked(READY, at(200.0))
    assert (again.phase, again.run, again.failures, again.process) == ("starting", 1, 0, None)
    assert parked(STOPPING, at(200.0)).phase == "stopped"
    assert parked(lived(Ordered(DRAIN), life=READY), at(200.0)).phase == "stopped"
    assert parked(FAILED, at(200.0)) == FAILED


def test_the_report_tells_all() -> None:  # spec: A3
    document = report(FAILED, NodeId("node-1"), "agent-1")
    assert document.phase == "failed"
    assert (document.failures, document.error, document.exit_code) == (1, CRASH, -9)
    assert document.retry_at is not None
    assert document.gpus == (GpuUuid("GPU-1"),)
    assert report(READY, NodeId("node-1"), "agent-1").process == ENGINE


EVENTS: tuple[Event, ...] = (
    Ordered(ORDER),
    Ordered(DRAIN),
    Ordered(replace(ORDER, attempt=2)),
    Dropped(),
    STARTED,
    Refused(CRASH),
    Refused(NO_MODEL),
    Moved(None),
    Moved(Progress(step="reading")),
    Answered(),
    Unhealthy(CRASH),
    Exited(CRASH),
    Looked(busy=False),
    Looked(busy=None),
    Ticked(),
)


def test_every_event_has_an_answer_in_every_phase() -> None:
    lives = (begin(ORDER, 0, at(100.0))[0], LOADING, READY, FAILED, STOPPING, STOPPED)
    assert {life.phase for life in lives} == set(get_args(ShardPhase))
    for life, event in itertools.product(lives, EVENTS):
        after, _ = step(life, event, rules())
        assert codec.decode(codec.encode(after), Life) == after


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 400)), max_size=40))
def test_a_new_engine_never_meets_the_old(events: list[tuple[Event, float]]) -> None:
    """Whatever comes in whatever order, as long as the shell only tells what it did."""
    life, actions = begin(ORDER, 0, at(0.0))
    now, running, stopped_attempts = 0.0, False, set[int]()
    for event, wait in events:
        now += wait
        if isinstance(event, Started | Refused) and ("start" not in actions or running):
            continue
        if isinstance(event, Exited) and not running:
            continue
        running = (running or isinstance(event, Started)) and not isinstance(event, Exited)
        life, actions = step(life, event, rules(now))
        if "start" in actions:
            assert not running
            assert life.order.attempt not in stopped_attempts
        if life.phase in ("failed", "stopped"):
            assert not running
        if life.phase == "stopped":
            stopped_attempts.add(life.order.attempt)
        due = due_in(life, at(now))
        if due is not None and due <= 0.0:
            again, acts = step(life, Ticked(), rules(now))
            assert (again, acts) != (life, ()), "time alone would wake it again and again"


def test_a_policy_of_its_own_is_kept() -> None:  # spec: R6
    quick = replace(LAUNCH, restart=RestartPolicy(first_seconds=10.0))
    failed = lived(Refused(CRASH), life=begin(replace(ORDER, launch=quick), 0, at(100.0))[0])
    assert failed.retry_at is not None
    assert 108.0 <= failed.retry_at <= 112.0


@pytest.mark.parametrize("phase", ["starting", "loading", "ready"])
def test_an_exit_while_it_should_run_is_the_failure(phase: str) -> None:
    """Also with exit code 0."""
    life = {"starting": lived(STARTED), "loading": LOADING, "ready": READY}[phase]
    assert lived(Exited(CLEAN), life=life).phase == "failed"
