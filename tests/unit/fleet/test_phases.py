import msgspec
import pytest

from schemas.documents import ReplicaGoal, ShardPhase
from services.fleet import phases
from tests.builders import Script, a_node, a_replica, a_shard, a_verdict


@pytest.mark.parametrize(
    ("goal", "shard", "phase"),
    [
        ("run", None, "placed"),
        ("run", "starting", "starting"),
        ("run", "loading", "loading"),
        ("run", "ready", "ready"),
        ("run", "failed", "failed"),
        ("run", "stopping", "stopping"),
        ("drain", None, "draining"),
        ("drain", "loading", "draining"),
        ("drain", "ready", "draining"),
        ("drain", "stopping", "stopping"),
        ("drain", "stopped", "stopping"),
        ("stop", "ready", "stopping"),
    ],
)
def test_a_phase_follows_from_goal_and_report(
    goal: ReplicaGoal, shard: ShardPhase | None, phase: str
) -> None:
    replica = a_replica(goal=goal)
    script = Script(a_node(), replica)
    if shard is not None:
        script.add(a_shard(replica, shard))
    assert phases.phase(script.state, replica) == phase


def test_a_report_of_an_older_attempt_does_not_make_it_ready() -> None:  # spec: L8
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica, "ready"))
    raised = msgspec.structs.replace(replica, attempt=2)
    script.add(raised)
    assert not phases.is_ready(script.state, raised)
    assert phases.phase(script.state, raised) == "placed"


@pytest.mark.parametrize(
    ("patience", "outlasted", "lost"),
    [(60.0, 60.0, True), (120.0, 60.0, False), (None, 600.0, False), (0.0, None, False)],
)
def test_lost_is_by_the_models_own_patience(
    patience: float | None, outlasted: float | None, lost: bool
) -> None:  # spec: R2
    replica = a_replica()
    script = Script(a_node(), replica, a_verdict(patience=outlasted))
    assert phases.is_lost(script.state, replica, patience) is lost


def test_a_replica_is_over_when_no_agent_has_anything_of_it() -> None:
    replica = a_replica(goal="drain")
    script = Script(a_node(), replica)
    assert phases.is_over(script.state, replica)
    script.add(a_shard(replica, "stopping"))
    assert not phases.is_over(script.state, replica)
    script.add(a_shard(replica, "stopped"))
    assert phases.is_over(script.state, replica)
