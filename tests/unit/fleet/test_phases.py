import pytest

from schemas.documents import ReplicaGoal, ShardPhase
from services.fleet import phases
from services.fleet.standing import stand_all
from tests.builders import Script, a_node, a_replica, a_shard


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
    ((standing,),) = stand_all(script.state, {}, {}).values()
    assert phases.phase(standing) == phase
