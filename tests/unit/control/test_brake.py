"""The mass-silence brake, lived through second by second."""

from collections.abc import Callable, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import ControlBrake, Gone, NodeVerdict
from schemas.ids import EventId, NodeId
from services.control.deciding.brake import Fleet as Counts
from services.control.deciding.brake import is_on, look, muster
from services.control.deciding.silence import Silence
from tests.builders import NOW, Script, a_model, a_node, at
from tests.support.deciding import Fleet
from tests.support.examples import examples


def names(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"node-{n:02d}" for n in range(first, last + 1))


def a_fleet(nodes: int, *models: Model) -> Fleet:
    """All alive and heard for long; what fits is ready."""
    fleet = Fleet(*(a_node(name) for name in names(1, nodes)), models=models)
    fleet.turn()
    for model in models:
        fleet.ready(model.name)
    return fleet


def live(fleet: Fleet, seconds: float, *silent: str, step: float = 1.0) -> list[str]:
    """Control decides every second, the others beat. Returns what was written."""
    written: list[str] = []
    for _ in range(round(seconds / step)):
        fleet.hearing += step
        fleet.wait(step, *silent)
        written += [draft.type for draft in fleet.turn().drafts]
    return written


def restart(fleet: Fleet, away_seconds: float = 0.0) -> None:
    """Another control takes over, or this one starts again: it has heard nobody yet."""
    fleet.hearing = 0.0
    fleet.wait(away_seconds, *fleet.heard)
    for node in fleet.heard:
        fleet.heard[node] += 0.001


def brake(fleet: Fleet) -> ControlBrake:
    return fleet.state.brake[()].document


def conditions(fleet: Fleet) -> dict[str, int]:
    found = [held.document.condition for held in fleet.state.verdicts.values()]
    return {word: found.count(word) for word in sorted(set(found))}


def release(fleet: Fleet) -> None:
    """As the command writes it."""
    document = replace(brake(fleet), engaged=False, released_by=EventId("command-1"))
    sequence = len(fleet.script.log) + 1
    fleet.script.log.append((sequence, subjects.CONTROL_BRAKE, b""))
    payload = codec.encode(
        {
            "id": "command-1",
            "log": codec.decode_event(fleet.script.log[0][2]).log,
            "type": "brake.released",
            "at": codec.rfc3339(fleet.now),
            "src": "control/test",
            "data": document,
        }
    )
    fleet.script.log[-1] = (sequence, subjects.CONTROL_BRAKE, payload)
    fleet.state.apply(sequence, subjects.CONTROL_BRAKE, payload)


# spec: R4
def test_more_than_half_silent_engages_and_nobody_is_lost() -> None:
    fleet = a_fleet(10, a_model(replicas=10))
    before = fleet.replicas()
    written = live(fleet, 600, *names(1, 6))
    assert written.count("brake.engaged") == 1
    assert (brake(fleet).silent, brake(fleet).nodes) == (6, 10)
    assert conditions(fleet) == {"unreachable": 6}
    assert fleet.replicas() == before
    assert sum(endpoint.last_choice for endpoint in fleet.endpoints().values()) == 6
    assert "replica.placed" not in written


# spec: R4
def test_half_is_not_more_than_half_and_two_are_not_three() -> None:
    half = a_fleet(10)
    live(half, 120, *names(1, 5))
    assert (conditions(half), is_on(half.state)) == ({"lost": 5}, False)
    two = a_fleet(3)
    live(two, 120, *names(1, 2))
    assert (conditions(two), is_on(two.state)) == ({"lost": 2}, False)
    all_three = a_fleet(3)
    live(all_three, 120, *names(1, 3))
    assert (conditions(all_three), is_on(all_three.state)) == ({"unreachable": 3}, True)


# spec: R4
def test_a_fleet_that_grows_from_two_to_three_needs_no_probe_any_more() -> None:
    two = a_fleet(2)
    live(two, 120, "node-01")
    assert conditions(two) == {"unreachable": 1}
    two.script.add(a_node("node-03"))
    two.heard[NodeId("node-03")] = 0.0
    live(two, 1, "node-01")
    assert conditions(two) == {"lost": 1}


# spec: R4
def test_of_three_nodes_with_one_lost_for_long_the_other_two_are_a_fleet_of_two() -> None:
    fleet = a_fleet(3)
    live(fleet, 600, "node-03")
    assert conditions(fleet) == {"lost": 1}
    live(fleet, 120, "node-02", "node-03")
    assert conditions(fleet) == {"lost": 1, "unreachable": 1}
    fleet.unanswered.add(NodeId("node-02"))
    live(fleet, 1, "node-02", "node-03")
    assert conditions(fleet) == {"lost": 2}


# spec: R4
def test_nodes_that_fall_silent_over_more_than_a_minute_are_no_mass_silence() -> None:
    fleet = a_fleet(4)
    for last in (1, 2, 3):
        live(fleet, 61, *names(1, last))
    assert not is_on(fleet.state)
    close = a_fleet(4)
    live(close, 30, *names(1, 1))
    live(close, 29, *names(1, 2))
    live(close, 6, *names(1, 3))
    assert is_on(close.state)


# spec: R4
def test_nodes_lost_for_long_neither_engage_nor_hold_it() -> None:
    fleet = a_fleet(9, a_model(replicas=9))
    gone = names(1, 3)
    live(fleet, 300, *gone)
    assert conditions(fleet) == {"lost": 3}
    live(fleet, 10, *gone, *names(4, 6))  # Half of the six that are left.
    assert not is_on(fleet.state)
    live(fleet, 10, *gone)
    live(fleet, 600, *gone, *names(4, 7))  # Four of six, and not half of nine.
    assert (brake(fleet).engaged, brake(fleet).silent, brake(fleet).nodes) == (True, 4, 6)
    assert conditions(fleet)["lost"] == 3
    live(fleet, 59, *gone)
    assert is_on(fleet.state)
    live(fleet, 2, *gone)
    assert not is_on(fleet.state)


# spec: R4
def test_it_ends_once_under_a_quarter_has_been_silent_for_a_minute_without_interruption() -> None:
    fleet = a_fleet(8)
    live(fleet, 100, *names(1, 6))
    assert live(fleet, 100, *names(1, 2)) == ["node.alive"] * 4  # A quarter is not less.
    assert live(fleet, 30, "node-01") == ["brake.eased", "node.alive"]
    assert live(fleet, 10, *names(1, 2)) == ["brake.held", "node.unreachable"]
    assert live(fleet, 60, "node-01") == ["brake.eased", "node.alive"]
    assert live(fleet, 2, "node-01") == ["brake.released", "node.lost"]
    assert not is_on(fleet.state)
    assert live(fleet, 300, "node-01") == []


# spec: R4 L2
def test_a_restart_or_takeover_neither_ends_nor_engages_it() -> None:
    fleet = a_fleet(8)
    live(fleet, 100, *names(1, 6))
    restart(fleet, 3600)
    assert live(fleet, 30, *names(1, 6)) == []
    assert live(fleet, 50)[0] == "brake.eased"
    restart(fleet)
    assert live(fleet, 50) == []  # Calm that this control has not heard itself is none.
    assert live(fleet, 12) == ["brake.released"]
    restart(fleet, 3600)
    assert live(fleet, 120) == []


# spec: R4 L3
def test_a_silence_that_goes_on_over_a_restart_is_the_same_silence() -> None:
    fleet = a_fleet(10)
    live(fleet, 30, *names(1, 3))
    restart(fleet, 600)
    live(fleet, 10, *names(1, 6))
    assert (brake(fleet).silent, brake(fleet).nodes) == (6, 10)
    lost = a_fleet(10)
    live(lost, 600, *names(1, 3))
    restart(lost)
    live(lost, 10, *names(1, 6))
    assert not is_on(lost.state)  # Three of the seven that had not been lost for long.


# spec: R4
def test_a_command_ends_it_for_this_silence_and_not_for_another() -> None:
    fleet = a_fleet(10, a_model(replicas=10))
    live(fleet, 30, *names(1, 6))
    release(fleet)
    live(fleet, 20, *names(1, 6))
    restart(fleet)
    live(fleet, 100, *names(1, 6))
    assert (conditions(fleet), is_on(fleet.state)) == ({"lost": 6}, False)
    assert set(fleet.nodes()) >= set(names(7, 10))
    live(fleet, 10, *names(1, 9))  # Three of the four that are left.
    assert (brake(fleet).engaged, brake(fleet).silent, brake(fleet).nodes) == (True, 3, 4)
    live(fleet, 100)
    assert not is_on(fleet.state)
    live(fleet, 10, *names(1, 6))  # All had been heard again: another silence.
    assert is_on(fleet.state)


# spec: R4
def test_a_restart_before_the_next_pass_does_not_engage_it_anew_for_the_same_silence() -> None:
    fleet = a_fleet(10, a_model(replicas=10))
    assert "brake.engaged" in live(fleet, 6, *names(1, 6))
    release(fleet)
    restart(fleet)
    assert "brake.engaged" not in live(fleet, 100, *names(1, 6))
    live(fleet, 10, *names(1, 9))
    assert (brake(fleet).engaged, brake(fleet).silent, brake(fleet).nodes) == (True, 3, 4)


# spec: R4
def test_a_pardoned_node_that_was_heard_again_counts_again() -> None:
    fleet = a_fleet(10)
    live(fleet, 30, *names(1, 6))
    release(fleet)
    live(fleet, 1, *names(4, 6))
    live(fleet, 6, *names(1, 6))
    assert muster(fleet.state, fleet.silence(), fleet.now) == Counts(nodes=7, silent=3, aside=3)
    assert not is_on(fleet.state)


# spec: R4
def test_what_was_lost_before_is_not_rebuilt_while_it_is_on() -> None:
    hasty = replace(a_model(replicas=8), patience_seconds=6.0)
    fleet = Fleet(*(replace(a_node(n), cores=1.0) for n in names(1, 8)), models=[hasty])
    fleet.turn()
    fleet.ready()
    live(fleet, 10, "node-01")  # Lost, and no room for another.
    assert conditions(fleet) == {"lost": 1}
    live(fleet, 10, *names(1, 5))
    assert is_on(fleet.state)
    fleet.script.add(a_node("node-09"))
    fleet.heard[NodeId("node-09")] = 0.0
    before = fleet.replicas()
    assert "replica.placed" not in live(fleet, 300, *names(1, 5))
    assert fleet.replicas() == before
    release(fleet)
    assert live(fleet, 1, *names(1, 5)).count("replica.placed") == 5


# spec: R4 L3
def test_what_an_operator_asks_for_goes_on() -> None:
    fleet = a_fleet(10)
    live(fleet, 10, *names(1, 6))
    fleet.swap(a_model(replicas=4))
    fleet.turn()
    assert sorted(fleet.nodes()) == list(names(7, 10))


# spec: R4 L3
def test_without_hearing_it_stays_as_it_is() -> None:
    fleet = a_fleet(4)
    live(fleet, 10, *names(1, 3))
    for hearing in (0.0, 1.0, 4.9):
        fleet.hearing = hearing
        assert fleet.ask().drafts == ()
    quiet = a_fleet(4)
    for hearing in (0.0, 4.9):
        quiet.hearing = hearing
        quiet.heard = dict.fromkeys(quiet.heard, 3600.0)
        assert quiet.ask().drafts == ()


# spec: R4 L3
def test_nothing_is_made_of_nodes_that_no_verdict_calls_silent_before_they_could_be_heard() -> None:
    fleet = a_fleet(4)
    live(fleet, 10, *names(1, 3))
    for name in names(1, 3):  # As where nodes never become unreachable.
        fleet.script.add(NodeVerdict(node=NodeId(name), condition="alive", since=at(0)))
    restart(fleet)
    fleet.hearing = 4.9
    fleet.heard = {node: 0.0 if node == "node-04" else 3600.0 for node in fleet.heard}
    assert fleet.ask().drafts == ()


# spec: R4 L3
def test_it_is_not_engaged_before_anybody_could_be_heard() -> None:
    fleet = a_fleet(6)
    live(fleet, 10, *names(1, 3))
    restart(fleet)
    for name in names(4, 5):
        fleet.script.put(subjects.node_info(NodeId(name)), Gone(id=name))
        del fleet.heard[NodeId(name)]
    fleet.turn()
    assert not is_on(fleet.state)  # Though three of the four that are left were not heard before.
    live(fleet, 5, *names(1, 3))
    assert is_on(fleet.state)


# spec: R4
def test_who_is_rebuilt_already_is_not_given_up_while_it_is_on() -> None:
    hasty = replace(a_model(replicas=4), patience_seconds=6.0)
    fleet = a_fleet(10, hasty)
    live(fleet, 10, "node-01")
    old, new = fleet.replicas()[0], fleet.replicas()[-1]
    assert [replica.shards[0].node for replica in (old, new)] == ["node-01", "node-05"]
    live(fleet, 10, "node-01", *names(6, 10))
    fleet.report(new)
    live(fleet, 60, "node-01", *names(6, 10))
    assert (is_on(fleet.state), old in fleet.replicas()) == (True, True)
    release(fleet)
    live(fleet, 1, "node-01", *names(6, 10))
    assert old not in fleet.replicas()


def test_says_when_it_may_end() -> None:
    fleet = a_fleet(4)
    live(fleet, 10, *names(1, 3))
    live(fleet, 21)
    found = look(fleet.state, fleet.silence(), fleet.now)
    assert (found.on, found.wait) == (True, 40.0)
    wake = fleet.ask().wake_at
    assert wake is not None
    assert wake <= fleet.now + 40.0


def test_its_document_says_since_when() -> None:
    fleet = a_fleet(4)
    live(fleet, 5, *names(1, 3))
    assert (brake(fleet).since, fleet.now) == (at(5), NOW + 5)


# Against a plain telling of the rule: nothing but who was last heard when.

Silent = tuple[frozenset[int], int, int]
"""Nodes, from which second, for how many."""

silences = st.lists(
    st.tuples(
        st.frozensets(st.integers(0, 7), min_size=1), st.integers(0, 150), st.integers(1, 150)
    ),
    max_size=4,
)


def is_silent(told: Iterable[Silent], node: int, second: int) -> bool:
    return any(node in nodes and start < second <= start + length for nodes, start, length in told)


def lived(nodes: int, told: list[Silent], each: Callable[[Fleet, int], None]) -> Fleet:
    fleet = a_fleet(nodes, a_model(replicas=nodes))
    for second in range(1, 200):
        away = [name for n, name in enumerate(names(1, nodes)) if is_silent(told, n, second)]
        fleet.hearing += 1
        fleet.wait(1, *away)
        each(fleet, second)
    return fleet


# spec: R4
@settings(max_examples=examples(6), deadline=None)
@given(st.integers(1, 8), silences)
def test_engages_exactly_when_the_rule_says_so(nodes: int, told: list[Silent]) -> None:
    def check(fleet: Fleet, _second: int) -> None:
        was_on = is_on(fleet.state)
        ages = [seconds for seconds in fleet.heard.values() if seconds < 65]
        silent = [seconds for seconds in ages if seconds >= 5]
        mass = len(silent) >= 3 and len(silent) * 2 > len(ages)
        fleet.turn()
        if not was_on:
            assert is_on(fleet.state) == mass

    lived(nodes, told, check)


# spec: R4
@settings(max_examples=examples(6), deadline=None)
@given(st.integers(3, 8), silences, st.frozensets(st.integers(1, 199), max_size=3))
def test_whatever_happens_nothing_is_given_up_while_it_is_on(
    nodes: int, told: list[Silent], restarts: frozenset[int]
) -> None:
    def check(fleet: Fleet, second: int) -> None:
        if second in restarts:
            restart(fleet, 1000)
        was_on, before = is_on(fleet.state), {r.id: r for r in fleet.replicas()}
        lost = conditions(fleet).get("lost", 0)
        fleet.turn()
        if is_on(fleet.state):
            after = {r.id: r for r in fleet.replicas()}
            assert after.keys() <= before.keys()
            for replica in before.values():
                if replica.goal == "run" and after.get(replica.id) != replica:
                    # A node came back: one more than wanted, and the least useful ends.
                    assert after[replica.id].reason == "surplus"
            assert conditions(fleet).get("lost", 0) <= lost
        if second in restarts:
            assert is_on(fleet.state) == was_on
        assert fleet.ask().drafts == ()

    lived(nodes, told, check)


# spec: R4 L2
@settings(max_examples=examples(6), deadline=None)
@given(st.integers(3, 8), silences)
def test_it_always_ends_a_minute_after_all_are_back(nodes: int, told: list[Silent]) -> None:
    def decide(fleet: Fleet, _second: int) -> None:
        fleet.turn()

    fleet = lived(nodes, told, decide)
    live(fleet, 62)
    assert not is_on(fleet.state)
    assert set(conditions(fleet)) <= {"alive"}


# spec: R4
def test_nodes_that_join_together_engage_nothing() -> None:
    script = Script(*(a_node(name) for name in names(1, 4)))
    nodes = {NodeId(name): 1.2 for name in names(1, 4)}
    joining = Silence(hearing_seconds=1000.0, joined=nodes)
    assert look(script.state, joining, NOW).fleet == Counts(4, 0)
    dead = Silence(hearing_seconds=1000.0, joined=dict.fromkeys(nodes, 5.0))
    assert look(script.state, dead, NOW).on
