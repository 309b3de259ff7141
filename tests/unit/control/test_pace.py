"""When another pass is worth its time: never later than when it would decide something."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.catalog import Model
from schemas.ids import NodeId, RouterId
from services.control.deciding.current import Current
from services.control.deciding.pace import LONGEST_SECONDS, Look, Pace, look
from services.control.deciding.silence import Silence
from services.fleet.catalog import EMPTY
from tests.builders import a_model, a_node
from tests.support.deciding import Fleet
from tests.support.examples import examples

NODES = ("node-1", "node-2", "node-3")
CURRENT = Current(1, EMPTY)


def a_quick_model(replicas: int) -> Model:
    """One that waits for nothing long."""
    return replace(a_model(replicas=replicas), patience_seconds=10.0, drain_grace_seconds=20.0)


Step = Callable[[Fleet], None]


def _wait(seconds: float, silent: frozenset[str]) -> Step:
    def step(fleet: Fleet) -> None:
        fleet.unanswered = {NodeId(node) for node in silent}
        fleet.hearing += seconds
        fleet.wait(seconds, *silent)

    return step


def _report(index: int, phase: str) -> Step:
    def step(fleet: Fleet) -> None:
        replicas = fleet.replicas()
        if replicas:
            fleet.report(replicas[index % len(replicas)], "ready" if phase == "ready" else "failed")

    return step


def _restart(fleet: Fleet) -> None:
    """Hearing begins anew: nobody was heard yet."""
    fleet.hearing = 0.5
    fleet.heard = dict.fromkeys(fleet.heard, 1e9)


def _hear(node: str) -> Step:
    def step(fleet: Fleet) -> None:
        if NodeId(node) in fleet.heard:
            fleet.heard[NodeId(node)] = 0.0

    return step


def _obey(silent: frozenset[str]) -> Step:
    return lambda fleet: fleet.obey(*silent)


def _swap(replicas: int) -> Step:
    return lambda fleet: fleet.swap(a_quick_model(replicas))


def _wait_answered(seconds: float, silent: frozenset[str]) -> Step:
    """No beats of theirs, but they answer the probe."""

    def step(fleet: Fleet) -> None:
        _wait(seconds, silent)(fleet)
        fleet.unanswered.clear()

    return step


def _route(fleet: Fleet) -> None:
    fleet.routers[RouterId("router-1")] = fleet.state.sequence


def _nothing(_: Fleet) -> None:
    pass


silent_nodes = st.frozensets(st.sampled_from(NODES))
steps = st.one_of(
    st.builds(_wait, st.sampled_from([0.3, 1.0, 4.0, 11.0]), silent_nodes),
    st.builds(_wait, st.just(1.0), silent_nodes),
    st.builds(_report, st.integers(0, 5), st.sampled_from(["ready", "failed"])),
    st.builds(_hear, st.sampled_from(NODES)),
    st.just(_restart),
    st.just(_route),
    st.builds(_obey, silent_nodes),
    st.builds(_swap, st.integers(0, 4)),
)


# spec: R1
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 3), st.lists(steps, max_size=30))
def test_a_pass_that_is_not_due_would_decide_nothing(nodes: int, script: list[Step]) -> None:
    fleet = Fleet(*(a_node(name) for name in NODES[:nodes]), models=[a_quick_model(2)])
    pace = Pace()
    fleet.turn()
    fleet.ready()
    _route(fleet)
    for step in (_nothing, *script):
        step(fleet)
        seen = look(fleet.state, CURRENT, fleet.silence())
        if pace.is_due(seen, fleet.now, 0.0):
            pace.passed(seen, fleet.turn().wake_at, 0.0, 0.0)
        else:
            decided = fleet.ask().drafts
            assert decided == (), [(draft.type, draft.subject) for draft in decided]


def settled(*steps: Step, nodes: int = 3) -> tuple[Fleet, Pace]:
    """Its replicas serve, a router has applied that, the steps were taken, and no pass is due."""
    fleet = Fleet(*(a_node(name) for name in NODES[:nodes]), models=[a_quick_model(2)])
    pace = Pace()
    fleet.turn()
    fleet.ready()
    _route(fleet)
    for step in (_nothing, *steps):
        step(fleet)
        while due(fleet, pace):
            seen = look(fleet.state, CURRENT, fleet.silence())
            pace.passed(seen, fleet.turn().wake_at, 0.0, 0.0)
    return fleet, pace


def due(fleet: Fleet, pace: Pace, monotonic: float = 0.0, current: Current = CURRENT) -> bool:
    return pace.is_due(look(fleet.state, current, fleet.silence()), fleet.now, monotonic)


def test_a_fleet_that_beats_on_needs_no_pass() -> None:
    fleet, pace = settled()
    for seconds in (0.0, 1.0, 2.0):
        fleet.wait(seconds)
        assert not due(fleet, pace)


NOBODY = frozenset[str]()
ONE = frozenset({"node-1"})


@pytest.mark.parametrize(
    ("nodes", "before", "then"),
    [
        pytest.param(3, [], _wait(6.0, ONE), id="silent"),
        pytest.param(3, [_wait(6.0, ONE)], _wait(1.0, NOBODY), id="heard again"),
        pytest.param(3, [_wait(11.0, ONE), _restart], _hear("node-1"), id="returned"),
        pytest.param(1, [_wait_answered(11.0, ONE)], _wait(0.0, ONE), id="probed"),
        pytest.param(3, [_swap(1)], _route, id="unrouted"),
        pytest.param(3, [_swap(1), _wait(11.0, NOBODY)], _wait(11.0, NOBODY), id="deadline"),
    ],
)
def test_what_leads_to_a_decision_makes_a_pass_due(
    nodes: int, before: list[Step], then: Step
) -> None:
    fleet, pace = settled(*before, nodes=nodes)
    then(fleet)
    assert fleet.ask().drafts != ()
    assert due(fleet, pace)


def test_another_catalog_or_event_needs_one() -> None:
    fleet, pace = settled()
    assert due(fleet, pace, current=Current(1, EMPTY, refused="by this version"))
    fleet.script.add(replace(a_node("node-1"), incarnation="agent-2"))
    assert due(fleet, pace)


def test_one_is_made_now_and_then_all_the_same() -> None:
    fleet, pace = settled()
    assert not due(fleet, pace, LONGEST_SECONDS - 1)
    assert due(fleet, pace, LONGEST_SECONDS)


def test_what_does_not_stand_is_decided_again() -> None:
    fleet, pace = settled()
    pace.begin()
    assert due(fleet, pace)


def test_rests_as_long_as_it_worked() -> None:
    pace = Pace()
    seen = look(Fleet().state, CURRENT, Silence(hearing_seconds=0.0))
    pace.passed(seen, None, began=10.0, ended=10.75)
    assert [pace.rest(at) for at in (10.75, 11.0, 11.5, 20.0)] == [0.75, 0.5, 0.0, 0.0]


def test_what_a_look_sees_does_not_depend_on_order() -> None:
    fleet = Fleet(*(a_node(name) for name in NODES))
    shuffled = list(fleet.heard.items())
    looks: list[Look] = []
    for seed in range(3):
        Random(seed).shuffle(shuffled)
        fleet.heard = dict(shuffled)
        looks.append(look(fleet.state, CURRENT, fleet.silence()))
    assert all(one == other for one, other in pairwise(looks))


def test_sees_who_is_silent_where_no_verdict_says_so() -> None:
    """The brake counts them by their silence alone."""
    state = Fleet(*(a_node(name) for name in NODES)).state
    heard = {NodeId("node-1"): 5.5, NodeId("node-2"): 1.0}
    silence = Silence(hearing_seconds=6.0, nodes=heard, unreachable_after=None)
    assert look(state, CURRENT, silence).silent == {"node-1", "node-3"}
