"""What a lost log began and this one does not know, as its node comes back after a recovery."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.catalog import Model
from schemas.documents import Gone, ReplicaDocument, ShardPhase, ShardPlan
from schemas.ids import LogId, NodeId, ReplicaId, RouterId
from services.control.deciding.adopting import ADOPTED, SLOTS_A_LOG, first_slot
from services.fleet.state import Held
from tests.builders import Script, a_model, a_node, a_replica, a_shard
from tests.support.deciding import Fleet

LOST = LogId("e" * 32)
BACK = a_replica(slot=0, node="node-2", generation=3, port=17007)


def recovered(replicas: int = 2, *, model: Model | None = None) -> Fleet:
    """A log that goes on from a lost one, and of which node-1 alone was part."""
    models = [model or a_model(replicas=replicas)]
    fleet = Fleet(a_node("node-1", cores=1.0), models=models, parent=LOST)
    fleet.turn()
    fleet.ready()
    assert fleet.nodes() == ["node-1"]
    return fleet


def returns(
    fleet: Fleet, *replicas: ReplicaDocument, phase: ShardPhase = "ready", heard: bool = True
) -> None:
    """An agent says what it runs, and then what it is."""
    for slot, replica in enumerate(replicas):
        shard = a_shard(replica, phase)
        fleet.script.put(subjects.node_shard(shard.node, slot), shard)
    fleet.script.add(a_node("node-2", cores=1.0))
    if heard:
        fleet.heard[NodeId("node-2")] = 0.0


def ids(fleet: Fleet) -> dict[ReplicaId, str]:
    return {replica.id: replica.goal for replica in fleet.replicas()}


def decided(fleet: Fleet, replica: ReplicaId) -> Held[ReplicaDocument]:
    held = fleet.state.replica(replica)
    assert held is not None
    return held


# spec: R1 L1
def test_where_there_is_room_it_becomes_a_replica_and_is_told_to_run_on() -> None:
    fleet = recovered()
    returns(fleet, BACK)
    fleet.turn()
    held = decided(fleet, BACK.id)
    found = held.document
    assert (found.slot, found.generation, found.revision) == (0, 3, fleet.revision)
    assert (found.goal, found.reason, held.type) == ("run", ADOPTED, "replica.adopted")
    assert [(plan.node, plan.port, plan.cores) for plan in found.shards] == [("node-2", 17007, 1.0)]
    assert found.profile_hash == a_model().profile_hash
    assert list(fleet.assigned("node-2")) == [BACK.id]
    assert BACK.id in fleet.endpoints()
    assert fleet.ask().drafts == ()


# spec: R7
def test_a_surplus_drains_as_any_other_does_and_the_log_says_why() -> None:
    fleet = recovered(replicas=1)
    fleet.routers[RouterId("router-1")] = 0
    fleet.wait(1)
    returns(fleet, BACK)
    fleet.turn()
    held = decided(fleet, BACK.id)
    assert (held.document.goal, held.type) == ("drain", "replica.draining")
    assert held.document.reason == f"surplus; {ADOPTED}"
    (report,) = fleet.state.shards_of(BACK.id)
    drafts = [log for log in fleet.script.log if log[1] == subjects.replica(BACK.model, 0)]
    assert f'"cause":"{report.event}"'.encode() in drafts[-1][2]
    assert fleet.assigned("node-2")[BACK.id].goal == "run"  # The router has not unrouted it yet.
    fleet.routers[RouterId("router-1")] = fleet.state.sequence
    fleet.turn()
    assert fleet.assigned("node-2")[BACK.id].goal == "drain"


def test_one_that_is_not_ready_yet_goes_before_what_came_back() -> None:
    fleet = recovered(replicas=1)
    fleet.report(fleet.replicas()[0], "loading")
    returns(fleet, BACK)
    fleet.turn()
    assert ids(fleet) == {BACK.id: "run", ReplicaId(f"tiny-{SLOTS_A_LOG}-1"): "stop"}


@pytest.mark.parametrize("phase", ["stopping", "stopped"])
def test_what_ends_already_is_not_taken_over(phase: ShardPhase) -> None:
    fleet = recovered()
    returns(fleet, BACK, phase=phase)
    fleet.turn()
    assert BACK.id not in ids(fleet)


@pytest.mark.parametrize("model", ["tiny-", "other", "tiny-0-0"])
def test_of_a_model_that_is_not_in_the_catalog_nothing_is_taken_over(model: str) -> None:
    fleet = recovered()
    returns(fleet, replace(BACK, model=model, id=f"{model}-0-3"))
    fleet.turn()
    assert fleet.assigned("node-2").keys() <= {f"tiny-{SLOTS_A_LOG + 1}-1"}


@pytest.mark.parametrize(
    "name", ["tiny-0-03", "tiny-0", "tiny-x-1", "other-0-3", "tiny-0-" + "9" * 5000]
)
def test_an_id_that_no_log_gives_is_not_taken_over(name: str) -> None:
    fleet = recovered()
    returns(fleet, replace(BACK, id=ReplicaId(name)))
    fleet.turn()
    assert ReplicaId(name) not in ids(fleet)


def test_what_this_log_has_ended_stays_ended() -> None:
    fleet = recovered()
    fleet.script.put(subjects.replica(BACK.model, 0), Gone(id=BACK.id))
    returns(fleet, BACK)
    fleet.turn()
    assert BACK.id not in ids(fleet)


def test_what_this_log_began_and_does_not_know_is_not_taken_over() -> None:
    fleet = recovered()
    own = a_replica(slot=SLOTS_A_LOG + 7, node="node-2")
    returns(fleet, own)
    fleet.turn()
    assert own.id not in ids(fleet)


def test_a_log_that_goes_on_from_none_takes_nothing_over() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.script.put(subjects.node_shard(NodeId("node-1"), 0), a_shard(a_replica(slot=4)))
    fleet.turn()
    assert list(ids(fleet)) == ["tiny-0-1"]


def test_a_later_generation_takes_its_slot_from_one_that_is_known() -> None:
    fleet = recovered()
    fleet.script.add(replace(BACK, id=ReplicaId("tiny-0-2"), generation=2))
    returns(fleet, BACK)
    fleet.turn()
    assert BACK.id in ids(fleet)
    assert "tiny-0-2" not in ids(fleet)
    assert fleet.ask().drafts == ()


def test_a_newer_attempt_is_taken_from_its_agent() -> None:
    fleet = recovered()
    plan = replace(BACK.shards[0], cores=0.5, memory_bytes=7)
    fleet.script.add(replace(BACK, shards=(plan,)))
    moved = replace(BACK, attempt=2, shards=(replace(plan, port=17050),))
    returns(fleet, moved)
    fleet.turn()
    found = decided(fleet, BACK.id).document
    assert (found.attempt, found.shards) == (2, moved.shards)
    assert fleet.assigned("node-2")[BACK.id].attempt == 2


def a_gang(nodes: Iterable[str]) -> ReplicaDocument:
    plans = [ShardPlan(node=NodeId(node), rank=n, port=17000) for n, node in enumerate(nodes)]
    return replace(BACK, shards=tuple(plans))


def test_a_gang_is_taken_over_whole_or_not_at_all() -> None:
    model = a_model(replicas=1)
    model = replace(model, profile=replace(model.profile, nodes=2))
    fleet = Fleet(models=[model], parent=LOST)
    whole = a_gang(["node-1", "node-2"])
    shards = [a_shard(replace(whole, shards=(plan,))) for plan in whole.shards]
    shards = [replace(shard, rank=rank, rendezvous_port=29500) for rank, shard in enumerate(shards)]
    fleet.script.add(shards[0], a_node("node-1"))
    fleet.heard = {NodeId("node-1"): 0.0, NodeId("node-2"): 0.0}
    assert not any(draft.type == "replica.adopted" for draft in fleet.ask().drafts)
    fleet.script.add(shards[1], a_node("node-2"))
    fleet.turn()
    plans = decided(fleet, whole.id).document.shards
    assert [(plan.node, plan.rank, plan.rendezvous_port) for plan in plans] == [
        ("node-1", 0, 29500),
        ("node-2", 1, 29500),
    ]


# spec: L5
def test_while_the_catalog_is_refused_its_node_is_told_nothing() -> None:
    fleet = recovered()
    models, fleet.models = fleet.models, None
    returns(fleet, BACK)
    fleet.turn()
    assert fleet.state.assignment(NodeId("node-2")) is None
    fleet.models = models
    fleet.turn()
    assert list(fleet.assigned("node-2")) == [BACK.id]


def test_a_node_is_told_nothing_before_it_was_heard_to_have_said_all_that_it_runs() -> None:
    fleet = recovered()
    fleet.script.add(
        BACK
    )  # Carried over from what was known, as its node still ran something else.
    returns(fleet, heard=False)
    fleet.turn()
    assert fleet.state.assignment(NodeId("node-2")) is None
    later = a_replica(slot=5, node="node-2", port=17008)
    fleet.script.put(subjects.node_shard(NodeId("node-2"), 0), a_shard(later))
    fleet.heard[NodeId("node-2")] = 0.0
    fleet.turn()
    assert later.id in fleet.assigned("node-2")


def test_ids_of_a_lost_log_are_never_used_again() -> None:
    assert first_slot(Script().state) == 0
    assert first_slot(Script(parent=LOST).state) == SLOTS_A_LOG
    assert list(ids(recovered())) == [f"tiny-{SLOTS_A_LOG}-1"]
