import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import Document, Gone, ReplicaGoal, Session
from schemas.ids import GpuUuid, ModelName
from services.fleet import phases
from services.fleet.standing import (
    Standing,
    holding,
    recorded_verdicts,
    stand,
    stand_all,
)
from tests.builders import Script, a_model, a_node, a_replica, a_shard, a_verdict, an_event

GPU = GpuUuid("gpu-1")


def standing_of(script: Script, patience: float | None = 60.0) -> Standing:
    """The only replica's."""
    (held,) = script.state.replicas.values()
    return stand(script.state, held, recorded_verdicts(script.state), patience)


def test_a_report_of_an_older_attempt_does_not_make_it_ready() -> None:  # spec: L8
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica, "ready"))
    assert standing_of(script).ready
    script.add(replace(replica, attempt=2))
    assert not standing_of(script).ready
    assert phases.phase(standing_of(script)) == "placed"


@pytest.mark.parametrize(
    ("patience", "outlasted", "lost"),
    [(60.0, 60.0, True), (120.0, 60.0, False), (None, 600.0, False), (0.0, None, False)],
)
def test_lost_is_by_the_models_own_patience(
    patience: float | None, outlasted: float | None, lost: bool
) -> None:  # spec: R2
    script = Script(a_node(), a_replica(), a_verdict(patience=outlasted))
    assert standing_of(script, patience).lost is lost


def test_something_runs_until_every_agent_says_stopped() -> None:
    replica = a_replica(goal="drain")
    script = Script(a_node(), replica)
    assert not standing_of(script).running
    script.add(a_shard(replica, "stopping"))
    assert standing_of(script).running
    script.add(a_shard(replica, "stopped"))
    assert not standing_of(script).running


@pytest.mark.parametrize(
    ("goal", "verdict", "counts"),
    [("run", "alive", True), ("run", "lost", False), ("drain", "alive", False)],
)
def test_counts_what_is_to_run_on_no_lost_node(
    goal: ReplicaGoal, verdict: str, counts: bool
) -> None:
    script = Script(a_node(), a_replica(goal=goal))
    if verdict == "lost":
        script.add(a_verdict())
    assert standing_of(script).counts is counts


def a_void_shard() -> Script:
    """Its agent started again since, and did not find it."""
    replica = a_replica()
    shard = replace(a_shard(replica), gpus=(GPU,))
    return Script(a_node(), replica, shard, replace(a_node(), incarnation="agent-2"))


def test_a_void_report_says_nothing_and_holds_nothing() -> None:
    script = a_void_shard()
    assert standing_of(script).shards == ()
    assert list(holding(script.state)) == []


def test_a_session_that_the_next_agent_found_goes_on() -> None:  # spec: A4
    script = a_void_shard()
    replica, process = a_replica(), a_shard().process
    assert process is not None
    found = Session(replica=replica.id, attempt=1, process=process)
    script.add(replace(a_node(), incarnation="agent-2", sessions=(found,)))
    assert standing_of(script).ready
    assert [held.document.gpus for held in holding(script.state)] == [(GPU,)]


def test_a_removed_nodes_reports_are_void_and_its_replicas_lost() -> None:
    replica = a_replica()
    script = Script(a_node(), replica, replace(a_shard(replica), gpus=(GPU,)))
    info = subjects.node_info(a_node().node)
    script.put(info, Gone(id=a_node().node))
    standing = standing_of(script, patience=None)
    assert (standing.lost, standing.alive, standing.serving) == (True, False, False)
    assert list(holding(script.state)) == []


@pytest.mark.parametrize("known", [(a_node(),), ()])
@pytest.mark.parametrize("payload", [b"not JSON", an_event({}, version=99, optional=True)])
def test_a_node_whose_description_cannot_be_read_is_not_removed(
    payload: bytes, known: tuple[Document, ...]
) -> None:  # spec: L5
    replica = a_replica()
    script = Script(*known, replica, a_shard(replica))
    script.state.apply(99, subjects.node_info(a_node().node), payload)
    standing = standing_of(script)
    assert (standing.serving, standing.alive, standing.lost) == (True, True, False)
    assert standing.untouchable or known


def test_each_replica_is_held_against_its_own_models_patience() -> None:  # spec: R2
    replicas = (a_replica("left"), a_replica("slow", port=17001), a_replica("swift", port=17002))
    script = Script(a_node(), *replicas, a_verdict(patience=60.0))
    models = {
        ModelName("slow"): replace(a_model("slow"), patience_seconds=600.0),
        ModelName("swift"): replace(a_model("swift"), patience_seconds=10.0),
    }
    found = stand_all(script.state, models, recorded_verdicts(script.state))
    lost = {name: [standing.lost for standing in standings] for name, standings in found.items()}
    assert lost == {"left": [True], "slow": [False], "swift": [True]}
