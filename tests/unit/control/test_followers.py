"""How far others are behind."""

import pytest

from schemas import subjects
from schemas.beats import AgentBeat, ControlBeat, RouterBeat
from schemas.documents import Assignment, ControlEpoch
from schemas.ids import ControlId, LogId, NodeId, RouterId
from services.control.followers import MARK_SECONDS, MOST_MARKS, Followers, Marks
from tests.builders import LOG_ID, Script

OTHER_LOG = LogId("f" * 32)


def marks(*seen: tuple[int, float]) -> Marks:
    made = Marks()
    for sequence, at in seen:
        made.note(sequence, at)
    return made


def followers(*seen: tuple[int, float]) -> Followers:
    made = Followers()
    made.begin(0, 0, 0.0)
    for sequence, at in seen:
        made.folded(sequence, sequence, at)
    return made


# spec: O1
@pytest.mark.parametrize(
    ("applied", "sequences", "seconds"),
    [(30, 0, 0.0), (29, 1, 60.0), (10, 20, 60.0), (9, 21, 70.0)],
)
def test_a_lag_is_as_old_as_the_first_thing_that_was_not_applied(
    applied: int, sequences: int, seconds: float
) -> None:
    lag = marks((10, 30.0), (30, 40.0)).lag(applied, 100.0)
    assert (lag.sequences, lag.seconds) == (sequences, seconds)


def test_who_knows_more_than_this_process_is_not_behind() -> None:
    assert marks((10, 30.0)).lag(12, 100.0).sequences == 0
    assert Marks().lag(0, 100.0).sequences == 0


def test_marks_take_bounded_room_and_keep_the_newest() -> None:
    made = Marks()
    for number in range(1, 5 * MOST_MARKS):
        made.note(number, number * MARK_SECONDS)
    assert made.kept < 2 * MOST_MARKS
    assert made.newest == 5 * MOST_MARKS - 1
    assert made.lag(5 * MOST_MARKS - 3, 5 * MOST_MARKS * MARK_SECONDS).seconds == 2 * MARK_SECONDS


def test_what_comes_at_once_shares_a_mark() -> None:
    made = Marks()
    for number in range(1, 1000):
        made.note(number, number * MARK_SECONDS / 1000)
    assert made.kept == 1
    assert made.newest == 999


def a_control_beat(head: int, epoch: int = 0, log: LogId = LOG_ID) -> ControlBeat:
    return ControlBeat(
        control=ControlId("control-1"),
        incarnation="start-1",
        leading=epoch > 0,
        epoch=epoch,
        log=log,
        head=head,
        routing=0,
    )


# spec: O1
def test_a_control_leads_only_by_the_epoch_in_force() -> None:
    script, follow = Script(), followers((20, 10.0))
    fence = script.put(
        subjects.CONTROL_EPOCH, ControlEpoch(holder=ControlId("control-1"), incarnation="start-1")
    )
    now = follow.control(script.state, a_control_beat(19, fence), 99.0, 100.0, answering=False)
    assert (now.leading, now.behind, now.behind_seconds) == (True, 1, 90.0)
    assert now.heard_seconds_ago == 1.0
    before = follow.control(
        script.state, a_control_beat(20, fence - 1), 99.0, 100.0, answering=True
    )
    assert (before.leading, before.behind, before.answering) == (False, 0, True)


# spec: O1
def test_of_another_log_nobody_knows_how_far_behind_it_is() -> None:
    script, follow = Script(), followers((20, 10.0))
    control = follow.control(
        script.state, a_control_beat(5, log=OTHER_LOG), 99.0, 100.0, answering=False
    )
    assert (control.behind, control.behind_seconds) == (-1, -1.0)
    beat = RouterBeat(router=RouterId("r"), incarnation="1", log=None, highest=0, applied=0)
    router = follow.router(script.state, beat, 99.0, 100.0)
    assert (router.behind, router.behind_seconds) == (-1, -1.0)


# spec: O1
def test_a_router_is_held_against_what_routers_follow_not_against_the_log() -> None:
    script, follow = Script(), followers((20, 10.0))
    follow.folded(5000, 0, 50.0)
    beat = RouterBeat(router=RouterId("r"), incarnation="1", log=LOG_ID, highest=20, applied=20)
    row = follow.router(script.state, beat, 99.0, 100.0)
    assert (row.behind, row.behind_seconds, row.applied) == (0, 0.0, 20)


def an_agent_beat(node: str, assignment: int, log: LogId | None = LOG_ID) -> AgentBeat:
    return AgentBeat(
        node=NodeId(node), incarnation="1", log=log, highest=assignment, assignment=assignment
    )


def assign(script: Script, node: str) -> int:
    document = Assignment(node=NodeId(node), shards=())
    return script.put(subjects.assignment(NodeId(node)), document)


# spec: O1
def test_an_agent_is_behind_since_the_first_assignment_that_it_has_not_applied() -> None:
    script, follow = Script(), followers()
    first = assign(script, "n1")
    follow.folded(first, 0, 10.0)
    beat = an_agent_beat("n1", first)
    follow.agent(script.state, beat, 11.0)
    assert follow.agents(script.state, [beat], 11.0).current == 1
    second = assign(script, "n1")
    follow.folded(second, 0, 20.0)
    follow.agent(script.state, beat, 21.0)
    third = assign(script, "n1")
    follow.folded(third, 0, 30.0)
    follow.agent(script.state, beat, 31.0)
    (late,) = follow.agents(script.state, [beat], 40.0).worst
    assert (late.node, late.assigned, late.applied) == ("n1", third, first)
    assert late.behind_seconds == 20.0
    caught_up = an_agent_beat("n1", third)
    follow.agent(script.state, caught_up, 41.0)
    assert follow.agents(script.state, [caught_up], 41.0).worst == ()
    follow.folded(assign(script, "n1"), 0, 50.0)
    follow.agent(script.state, caught_up, 51.0)
    (again,) = follow.agents(script.state, [caught_up], 60.0).worst
    assert again.behind_seconds == 10.0


# spec: O1
def test_agents_are_counted_and_only_the_worst_are_named() -> None:
    script, follow = Script(), followers()
    beats: list[AgentBeat] = []
    for number in range(100):
        sequence = assign(script, f"n{number}")
        follow.folded(sequence, 0, float(number))
        beats.append(an_agent_beat(f"n{number}", 0 if number % 2 else sequence))
        follow.agent(script.state, beats[-1], float(number))
    beats.append(an_agent_beat("stranger", 0, log=OTHER_LOG))
    told = follow.agents(script.state, beats, 100.0)
    assert (told.heard, told.current, told.behind, told.unknown) == (101, 50, 50, 1)
    assert [row.node for row in told.worst[:2]] == ["n1", "n3"]
    assert len(told.worst) == 20


def test_an_agent_that_was_silent_is_behind_by_the_age_of_its_assignment() -> None:
    script, follow = Script(), followers()
    follow.folded(assign(script, "n1"), 0, 10.0)
    beat = an_agent_beat("n1", 0)
    follow.agent(script.state, beat, 10.0)
    follow.forget(lambda _: False)
    follow.agent(script.state, beat, 500.0)
    (late,) = follow.agents(script.state, [beat], 500.0).worst
    assert late.behind_seconds == 490.0
