import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.beats import AgentBeat
from schemas.catalog import Model
from schemas.documents import Document, Gone, ReplicaDocument
from schemas.ids import LogId, ModelName, NodeId, ReplicaId
from services.control.deciding.drafts import Draft
from services.control.deciding.placing import GENERATIONS_A_LOG, first_generation
from services.control.recovery.handover import (
    OLDEST_ANCESTORS,
    base_of,
    carry,
    is_recovering,
    lineage,
    running,
    take_over,
    waits_for,
    would_end,
)
from services.fleet.state import FleetState
from tests.builders import (
    LOG_ID,
    NOW,
    Script,
    a_genesis,
    a_model,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
    subject_of,
)

NEW = LogId("b" * 32)
TINY = ModelName("tiny")
MODELS = {TINY: a_model(replicas=2)}
BOTH = {NodeId("node-1"), NodeId("node-2")}
FIRST, SECOND = a_replica(slot=0), a_replica(slot=1, node="node-2", port=17001)


def a_base() -> FleetState:
    script = Script(a_node("node-1"), a_node("node-2"), a_pointer(3), a_verdict("node-2"))
    script.add(FIRST, SECOND, a_shard(FIRST), a_shard(SECOND))
    script.put(subjects.replica(TINY, 5), Gone(id="tiny-5-3"))
    return script.state


def a_new_log(*documents: Document) -> FleetState:
    """What agents have told it so far."""
    state = FleetState()
    genesis = a_genesis(NEW, LOG_ID, (LOG_ID,))
    state.apply(100, subjects.GENESIS, an_event(genesis, log=NEW))
    for sequence, document in enumerate(documents, 101):
        state.apply(sequence, subject_of(document), an_event(document, log=NEW))
    return state


def a_beat(node: str = "node-1", *held: ReplicaId, log: LogId = NEW) -> AgentBeat:
    return AgentBeat(
        node=NodeId(node),
        incarnation="agent-1",
        log=log,
        highest=9,
        assignment=0,
        held=dict.fromkeys(held, TINY),
    )


def replicas(drafts: tuple[Draft, ...]) -> dict[str, object]:
    return {
        draft.subject.removeprefix("flotilla.log.s.replica."): draft.document for draft in drafts
    }


def test_a_log_is_recovering_from_its_genesis_to_its_first_catalog() -> None:
    state = a_new_log()
    assert is_recovering(state)
    assert not is_recovering(Script().state)
    state.apply(200, subjects.CATALOG, an_event(a_pointer(3), log=NEW))
    assert not is_recovering(state)


def test_a_node_is_waited_for_until_all_that_it_runs_is_told() -> None:
    state = a_new_log(a_node("node-1"))
    assert waits_for(state, [a_beat("node-1", FIRST.id)]) == {"node-1": "has not reported tiny-0-1"}
    state = a_new_log(a_node("node-1"), a_shard(FIRST))
    assert waits_for(state, [a_beat("node-1", FIRST.id)]) == {}
    assert list(waits_for(state, [a_beat("node-2")])) == ["node-2"]


def test_a_beat_from_before_the_move_says_nothing_of_what_a_node_holds() -> None:
    state = a_new_log(a_node("node-1"))
    earlier = replace(a_beat("node-1", log=LOG_ID), held=None, assignment=40)
    assert waits_for(state, [earlier]) == {"node-1": f"follows log {LOG_ID}"}


def test_only_what_no_decision_makes_anew_is_carried_and_for_silent_nodes_what_agents_said() -> (
    None
):
    drafts = carry(a_new_log(a_node("node-1")), base_of(a_base()), {NodeId("node-1")})
    assert {draft.subject for draft in drafts} == {
        subjects.node_verdict(NodeId("node-2")),
        subjects.node_info(NodeId("node-2")),
        subjects.node_shard(NodeId("node-2"), 0),
    }


def test_what_stands_already_is_not_written_again() -> None:
    state, base = a_new_log(a_node("node-1")), base_of(a_base())
    for sequence, draft in enumerate(carry(state, base, set()), 200):
        state.apply(sequence, draft.subject, an_event(draft.document, log=NEW))
    assert carry(state, base, set()) == ()


def test_replicas_that_run_are_taken_over_as_they_were() -> None:
    state = a_new_log(a_node("node-1"), a_node("node-2"), a_shard(FIRST), a_shard(SECOND))
    drafts = take_over(state, base_of(a_base()), MODELS, BOTH, 3, NOW)
    assert replicas(drafts) == {"tiny.0": FIRST, "tiny.1": SECOND, "tiny.5": Gone(id="tiny-5-3")}


def test_what_a_node_that_beats_knows_nothing_of_is_gone() -> None:
    state = a_new_log(a_node("node-1"), a_node("node-2"), a_shard(SECOND))
    drafts = take_over(state, base_of(a_base()), MODELS, BOTH, 3, NOW)
    assert replicas(drafts)["tiny.0"] == Gone(id="tiny-0-1")


def test_what_stands_on_a_silent_node_is_kept() -> None:
    state = a_new_log(a_node("node-2"), a_shard(SECOND))
    drafts = take_over(state, base_of(a_base()), MODELS, {NodeId("node-2")}, 3, NOW)
    assert replicas(drafts)["tiny.0"] == FIRST


def test_what_agents_run_and_nobody_knows_is_adopted() -> None:
    later = a_replica(slot=0, generation=4, port=17007)
    state = a_new_log(a_node("node-1"), a_shard(later))
    drafts = take_over(state, base_of(FleetState()), MODELS, BOTH, 7, NOW)
    found = replicas(drafts)["tiny.0"]
    assert isinstance(found, ReplicaDocument)
    assert (found.id, found.slot, found.generation) == (later.id, 0, 4)
    assert (found.revision, found.goal, found.reason) == (7, "run", "adopted")
    assert [(plan.node, plan.port, plan.cores) for plan in found.shards] == [("node-1", 17007, 1.0)]
    assert found.profile_hash == MODELS[TINY].profile_hash


def test_a_later_generation_takes_its_slot_from_one_that_is_known() -> None:
    later = a_replica(slot=0, generation=4)
    state = a_new_log(a_node("node-1"), a_node("node-2"), a_shard(later))
    found = replicas(take_over(state, base_of(a_base()), MODELS, BOTH, 3, NOW))["tiny.0"]
    assert isinstance(found, ReplicaDocument)
    assert found.id == later.id


def test_a_newer_attempt_is_taken_from_its_agent() -> None:
    moved = replace(FIRST, attempt=2, shards=(replace(FIRST.shards[0], port=17050),))
    state = a_new_log(a_node("node-1"), a_node("node-2"), a_shard(moved), a_shard(SECOND))
    found = replicas(take_over(state, base_of(a_base()), MODELS, BOTH, 3, NOW))["tiny.0"]
    assert isinstance(found, ReplicaDocument)
    assert (found.attempt, found.shards[0].port) == (2, 17050)
    assert found.profile_hash == FIRST.profile_hash


def test_part_of_a_gang_is_not_adopted() -> None:
    gang = a_model()
    gang = replace(gang, profile=replace(gang.profile, nodes=2))
    state = a_new_log(a_node("node-1"), a_shard(FIRST))
    drafts = take_over(state, base_of(FleetState()), {TINY: gang}, BOTH, 1, NOW)
    assert drafts == ()


def test_what_agents_say_now_counts_for_more_than_what_they_said() -> None:
    assert running(a_base(), []) == {FIRST.id: TINY, SECOND.id: TINY}
    assert running(a_base(), [a_beat("node-1")]) == {SECOND.id: TINY}
    assert running(FleetState(), [a_beat("node-1", FIRST.id)]) == {FIRST.id: TINY}


@pytest.mark.parametrize(
    ("models", "prune", "told"),
    [
        (MODELS, (), []),
        ({}, (), ["2 replicas of tiny run, the catalog has no such model"]),
        ({TINY: a_model(replicas=1)}, (), ["2 replicas of tiny run, the catalog wants 1"]),
        ({}, (TINY,), []),
    ],
)
def test_a_catalog_that_would_end_engines_is_refused_unless_they_are_named(
    models: dict[ModelName, Model], prune: tuple[ModelName, ...], told: list[str]
) -> None:
    run = {FIRST.id: TINY, SECOND.id: TINY}
    assert list(would_end(run, models, prune).values()) == told


def test_replica_ids_of_a_lost_log_are_never_used_again() -> None:
    assert first_generation(Script().state) == 1
    assert first_generation(a_new_log()) == GENERATIONS_A_LOG + 1


def test_the_lineage_is_bounded_and_names_each_log_once() -> None:
    many = [LogId(f"{n:032x}") for n in range(30)]
    assert lineage([LOG_ID, None], many, [LOG_ID]) == (LOG_ID, *many[: OLDEST_ANCESTORS - 1])
