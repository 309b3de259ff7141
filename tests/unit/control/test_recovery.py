import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.beats import AgentBeat
from schemas.catalog import Model
from schemas.documents import Document, Gone
from schemas.ids import LogId, ModelName, NodeId, ReplicaId
from schemas.recovery import Recover
from services.control.commanding.commands import No
from services.control.damage import Claim, Reported
from services.control.deciding.drafts import Draft
from services.control.recovery.choice import Chosen, Known, choose, ways
from services.control.recovery.handover import (
    base_of,
    carry,
    is_recovering,
    running,
    take_over,
    waits_for,
    would_end,
)
from services.control.recovery.succession import (
    MOST_AHEAD,
    OLDEST_ANCESTORS,
    UNNAMED,
    followed,
    highest,
    lineage,
)
from services.fleet.state import FleetState
from tests.builders import (
    LOG_ID,
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
    drafts = take_over(state, base_of(a_base()), MODELS, BOTH)
    assert replicas(drafts) == {"tiny.0": FIRST, "tiny.1": SECOND, "tiny.5": Gone(id="tiny-5-3")}


def test_what_a_node_that_beats_knows_nothing_of_is_gone() -> None:
    state = a_new_log(a_node("node-1"), a_node("node-2"), a_shard(SECOND))
    drafts = take_over(state, base_of(a_base()), MODELS, BOTH)
    assert replicas(drafts)["tiny.0"] == Gone(id="tiny-0-1")


def test_what_stands_on_a_silent_node_is_kept() -> None:
    state = a_new_log(a_node("node-2"), a_shard(SECOND))
    drafts = take_over(state, base_of(a_base()), MODELS, {NodeId("node-2")})
    assert replicas(drafts)["tiny.0"] == FIRST


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


def test_the_lineage_is_bounded_and_names_each_log_once() -> None:
    many = [LogId(f"{n:032x}") for n in range(30)]
    assert lineage([LOG_ID, None], many, [LOG_ID]) == (LOG_ID, *many[: OLDEST_ANCESTORS - 1])


def test_where_nobody_can_name_the_lost_log_it_has_a_name_all_the_same() -> None:
    assert lineage([None], []) == (UNNAMED,)
    state = FleetState()
    state.apply(9, subjects.GENESIS, an_event(a_genesis(NEW, UNNAMED, (UNNAMED,)), log=NEW))
    assert is_recovering(state)


LIE = Claim("agent x", LogId("f" * 32), "agent x follows another log")
FAR = Claim("agent y", LOG_ID, "agent y has seen more")


def test_who_was_not_believed_names_no_ancestor_and_takes_no_sequences_away() -> None:
    told = {"agent x": LIE.log, "agent a": LOG_ID, "router r": LIE.log}
    assert list(followed(told, [LIE])) == [LOG_ID, LIE.log]  # The router was never doubted.
    reports = [Reported("agent a", LOG_ID, 60), Reported("agent y", LOG_ID, 900)]
    assert highest(50, reports, [FAR]) == 60
    assert highest(50, reports, []) == 900


def test_no_word_of_a_program_takes_the_sequences_away() -> None:
    reports = [Reported("agent x", LOG_ID, 2**60), Reported("agent y", LOG_ID, 50 + MOST_AHEAD)]
    assert highest(50, reports, []) == 50 + MOST_AHEAD
    assert highest(50, [], []) == 50


CATALOG = "models: {tiny: {engine: llamacpp, source: /t.gguf, replicas: 1}}"
FROM_AGENTS = Recover(way="agents", catalog=CATALOG, file="fleet.yaml")


@pytest.mark.parametrize(
    "known",
    [
        Known(a_base(), None, (a_beat("node-1", FIRST.id),)),
        Known(None, a_base(), (a_beat("node-1", FIRST.id),)),
        Known(None, None, (a_beat("node-1", FIRST.id),), frozenset(BOTH)),
    ],
)
def test_agents_are_gone_on_from_without_a_node_that_is_away_only_if_it_is_named(
    known: Known,
) -> None:
    run = {FIRST.id: TINY}
    offered = {way.way: way for way in ways(known)}["agents"]
    assert (offered.away, offered.unsure) == (("node-2",), "")
    refused = choose(known, FROM_AGENTS, run)
    assert isinstance(refused, No)
    assert refused.code == "nodes_away"
    assert refused.next == (
        "flotilla journal recover --from agents --catalog fleet.yaml --without node-2"
    )
    named = replace(FROM_AGENTS, without=(NodeId("node-2"),))
    assert isinstance(choose(known, named, run), Chosen)


def test_a_node_that_is_away_need_not_be_named_where_the_base_knows_of_it() -> None:
    known = Known(a_base(), None, (a_beat("node-1", FIRST.id),))
    assert {way.way: way for way in ways(known)}["memory"].away == ()
    chosen = choose(known, Recover(way="memory", catalog=CATALOG, prune=(TINY,)), {})
    assert isinstance(chosen, Chosen)


def test_where_no_node_is_known_but_those_that_beat_it_is_said() -> None:
    known = Known(None, None, (a_beat("node-1", FIRST.id),))
    offered = {way.way: way for way in ways(known)}["agents"]
    assert (offered.away, "may be away" in offered.unsure) == ((), True)
    assert isinstance(choose(known, FROM_AGENTS, {FIRST.id: TINY}), Chosen)
