from schemas.documents import NodeVerdict
from schemas.ids import NodeId
from services.control.deciding.silence import Silence
from services.control.deciding.verdicts import judge, next_change
from tests.builders import AT, NOW, a_verdict, at

NODE = NodeId("node-1")


def judged(
    silent: float | None,
    before: NodeVerdict | None = None,
    *,
    hearing: float = 1000.0,
    patiences: tuple[float, ...] = (60.0,),
    failed_probe: bool | None = None,
    unreachable_after: float | None = 5.0,
) -> NodeVerdict:
    """`silent` None: not heard since hearing began. `failed_probe` None: none is needed."""
    silence = Silence(
        hearing_seconds=hearing,
        nodes={} if silent is None else {NODE: silent},
        unanswered=frozenset({NODE} if failed_probe else ()),
        unreachable_after=unreachable_after,
    )
    return judge(
        NODE, before, silence, patiences, needs_probe=failed_probe is not None, now=NOW + 100
    )


# spec: R2
def test_silent_for_five_seconds_is_unreachable() -> None:
    assert judged(4.9).condition == "alive"
    assert judged(5.0).condition == "unreachable"


# spec: R2
def test_silent_for_the_patience_is_lost() -> None:
    assert judged(59.9).condition == "unreachable"
    assert judged(60.0).lost_patience_seconds == 60.0


# spec: R2
def test_each_patience_is_outlasted_on_its_own() -> None:
    assert judged(100.0, patiences=(60.0, 90.0, 120.0)).lost_patience_seconds == 90.0


def test_a_patience_shorter_than_unreachable_is_outlasted_then() -> None:
    assert judged(4.0, patiences=(0.0,)).condition == "alive"
    assert judged(5.0, patiences=(0.0,)).lost_patience_seconds == 0.0


# spec: R4
def test_in_a_small_fleet_silence_alone_loses_no_node() -> None:
    assert judged(600.0, failed_probe=False).condition == "unreachable"
    assert judged(600.0, failed_probe=True).condition == "lost"


# spec: R4
def test_in_a_small_fleet_a_node_that_answers_outlasts_no_further_patience() -> None:
    found = judged(600.0, a_verdict(), patiences=(60.0, 120.0), failed_probe=False)
    assert (found.condition, found.lost_patience_seconds) == ("lost", 60.0)


# spec: L3
def test_a_node_not_heard_since_hearing_began_keeps_its_verdict() -> None:
    for condition in ("unreachable", "lost"):
        before = a_verdict(condition=condition)
        assert judged(None, before, hearing=1.0).condition == condition
    assert judged(None, None, hearing=1.0).condition == "alive"


# spec: L3
def test_a_node_that_died_while_nobody_heard_is_judged_by_the_time_since_hearing_began() -> None:
    assert judged(None, hearing=5.0).condition == "unreachable"
    assert judged(None, hearing=60.0).condition == "lost"


def test_only_being_heard_makes_a_node_alive_again() -> None:
    found = judged(0.5, a_verdict())
    assert (found.condition, found.lost_patience_seconds) == ("alive", None)


def test_since_is_when_the_condition_began() -> None:
    before = a_verdict(patience=60.0)
    assert judged(130.0, before, patiences=(60.0, 120.0)).since == AT
    assert judged(0.5, before).since == at(100)


def test_knows_when_the_next_verdict_may_come() -> None:
    silence = Silence(hearing_seconds=1000.0, nodes={NODE: 1.0})
    assert next_change(NODE, silence, (60.0,)) == 4.0
    silence = Silence(hearing_seconds=1000.0, nodes={NODE: 10.0})
    assert next_change(NODE, silence, (60.0,)) == 50.0
    assert next_change(NODE, silence, ()) is None


# spec: L3 R2
def test_the_interval_can_be_set_and_can_be_off() -> None:
    assert judged(29.9, unreachable_after=30.0).condition == "alive"
    assert judged(30.0, unreachable_after=30.0).condition == "unreachable"
    assert judged(59.9, unreachable_after=None).condition == "alive"
    assert judged(60.0, unreachable_after=None).condition == "lost"
    before = a_verdict(condition="unreachable", patience=None)
    assert judged(59.9, before, unreachable_after=None).condition == "unreachable"


# spec: R4
def test_without_patiences_nobody_is_lost_and_who_was_stays_so() -> None:
    assert judged(600.0, patiences=()).condition == "unreachable"
    found = judged(600.0, a_verdict(patience=60.0), patiences=())
    assert (found.condition, found.lost_patience_seconds) == ("lost", 60.0)


def test_a_verdict_says_since_when_its_node_is_silent() -> None:
    first = judged(8.0)
    assert (first.since, first.silent_since) == (at(100), at(92))
    assert judged(60.0, first).silent_since == at(92)
    assert judged(0.5, first).silent_since is None


# spec: R2
def test_a_node_that_joins_is_alive_before_its_first_beat() -> None:
    joined = Silence(hearing_seconds=1000.0, joined={NODE: 1.2})
    first = judge(NODE, None, joined, (0.0,), needs_probe=False, now=NOW)
    assert first.condition == "alive"
    assert next_change(NODE, joined, ()) == 3.8
    never = Silence(hearing_seconds=1000.0, joined={NODE: 5.0})
    assert judge(NODE, first, never, (), needs_probe=False, now=NOW).condition == "unreachable"
