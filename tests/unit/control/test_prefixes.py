"""A decision may be cut by a crash anywhere between two of its documents: every prefix is safe.

In each scenario, every prefix of every decision is folded alone. What stands in the log then breaks
nothing for agents and routers that act on it, and control, deciding again, comes to the same end.
"""

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from schemas import subjects
from schemas.catalog import GpuNeed, Model
from schemas.documents import AssignedShard, Card, LastError, NodeInfo
from schemas.ids import GpuUuid, NodeId, ReplicaId, RouterId
from services.control.deciding.drafts import Draft
from services.control.deciding.reconcile import decide
from services.fleet.state import FleetState
from tests.builders import a_model, a_node, an_event
from tests.support.deciding import Fleet

ROUTER = RouterId("router-1")
GIB = 1 << 30
REPLICAS = subjects.ALL_REPLICAS.removesuffix(">")


def a_machine(name: str) -> NodeInfo:
    cards = tuple(
        Card(uuid=GpuUuid(f"{name}-{n}"), gpu_class="l4", memory_bytes=24 * GIB) for n in range(2)
    )
    return replace(a_node(name), cards=cards, fabric="east")


def on_cards(name: str, count: int, *, nodes: int = 1, replicas: int = 1) -> Model:
    model = a_model(name, replicas=replicas)
    need = GpuNeed(gpu_class="l4", count=count)
    profile = replace(model.profile, gpu=need, cpu=None, nodes=nodes)
    return replace(model, profile=profile, profile_hash=f"{name}-{count}-{nodes}")


def a_fleet(*models: Model) -> Fleet:
    """Three nodes of two cards; all that fits is ready and routed."""
    fleet = Fleet(*(a_machine(f"node-{n}") for n in (1, 2, 3)), models=models)
    fleet.turn()
    for model in models:
        fleet.ready(model.name)
    fleet.routers[ROUTER] = fleet.state.sequence
    return fleet


def first_start() -> Fleet:
    models = (a_model(replicas=3), on_cards("big", 1, replicas=2))
    return Fleet(*(a_machine(f"node-{n}") for n in (1, 2, 3)), models=models)


def a_model_leaves() -> Fleet:
    fleet = a_fleet(a_model(replicas=2), on_cards("big", 2, replicas=2))
    fleet.swap(on_cards("big", 2, replicas=2))
    return fleet


def another_takes_its_cards() -> Fleet:
    fleet = a_fleet(on_cards("big", 2, replicas=3))
    fleet.swap(on_cards("other", 2, replicas=3))
    return fleet


def a_roll() -> Fleet:
    fleet = a_fleet(a_model(replicas=2))
    fleet.swap(a_model(replicas=2, source="/models/new.gguf"))
    return fleet


def a_roll_without_room() -> Fleet:
    fleet = a_fleet(on_cards("big", 2, replicas=3))
    fleet.swap(replace(on_cards("big", 2, replicas=3), profile_hash="new"))
    return fleet


def a_gang_is_replaced() -> Fleet:
    fleet = a_fleet(on_cards("gang", 2, nodes=2))
    fleet.swap(on_cards("big", 2, replicas=3))
    return fleet


def a_node_is_lost() -> Fleet:
    fleet = a_fleet(a_model(replicas=3), on_cards("big", 1, replicas=2))
    lost = fleet.nodes("big")[0]
    fleet.unanswered.add(NodeId(lost))
    fleet.wait(60, lost)
    return fleet


def a_lost_node_returns() -> Fleet:
    fleet = a_node_is_lost()
    fleet.turn()
    fleet.unanswered.clear()
    fleet.wait(1)
    return fleet


def no_grace_at_all() -> Fleet:
    at_once = replace(a_model(replicas=2), drain_grace_seconds=0.0)
    fleet = a_fleet(at_once)
    fleet.swap(replace(at_once, replicas=1))
    return fleet


def it_fails_as_it_is_retired() -> Fleet:
    fleet = a_fleet(a_model(replicas=2))
    killed = LastError(failure="killed", message="out of memory")
    fleet.report(fleet.replicas()[0], "failed", error=killed)
    fleet.swap(a_model(replicas=1))
    return fleet


def a_port_is_taken() -> Fleet:
    fleet = a_fleet(a_model(replicas=2))
    taken = LastError(failure="port_in_use", message="in a stranger's hands")
    fleet.report(fleet.replicas()[0], "failed", error=taken)
    return fleet


def most_fall_silent() -> Fleet:
    fleet = a_fleet(a_model(replicas=3), on_cards("big", 1, replicas=2))
    fleet.wait(60, *fleet.heard)
    return fleet


SCENARIOS: tuple[Callable[[], Fleet], ...] = (
    first_start,
    a_model_leaves,
    another_takes_its_cards,
    a_roll,
    a_roll_without_room,
    a_gang_is_replaced,
    a_node_is_lost,
    a_lost_node_returns,
    no_grace_at_all,
    it_fails_as_it_is_retired,
    a_port_is_taken,
    most_fall_silent,
)


def decisions(fleet: Fleet) -> Iterator[tuple[Draft, ...]]:
    """Turn after turn, while agents obey and the router applies what it is told."""
    for _ in range(30):
        drafts = fleet.ask().drafts
        if drafts:
            yield drafts
        fleet.fold(drafts)
        fleet.obey(*(node for node, seconds in fleet.heard.items() if seconds))
        fleet.routers[ROUTER] = fleet.state.sequence
        fleet.wait(1, *(node for node, seconds in fleet.heard.items() if seconds))


def folded(fleet: Fleet, drafts: tuple[Draft, ...]) -> FleetState:
    """What another control reads after a crash."""
    state = FleetState()
    for message in fleet.script.log:
        state.apply(*message)
    fold(state, drafts)
    return state


def fold(state: FleetState, drafts: tuple[Draft, ...]) -> None:
    for draft in drafts:
        state.apply(state.sequence + 1, draft.subject, an_event(draft.document, id_=draft.id))


Told = dict[tuple[NodeId, ReplicaId], AssignedShard]


def told(state: FleetState) -> Told:
    """What each node is told of each replica."""
    return {
        (held.document.node, shard.replica): shard
        for held in state.assignments.values()
        for shard in held.document.shards
    }


def check_cards(state: FleetState) -> None:
    """P5: no card is named for two replicas, by control's documents and by what nodes were told.

    What a node reported stopped it never starts again in that attempt, whatever it is told.
    """
    by_card: dict[GpuUuid, set[ReplicaId]] = {}
    for held in state.assignments.values():
        for shard in held.document.shards:
            if not has_stopped(state, shard):
                for gpu in shard.launch.gpus:
                    by_card.setdefault(gpu, set()).add(shard.replica)
    for replica in state.replicas.values():
        for plan in replica.document.shards:
            for gpu in plan.gpus:
                by_card.setdefault(gpu, set()).add(replica.document.id)
    assert all(len(holders) == 1 for holders in by_card.values()), by_card


def has_stopped(state: FleetState, shard: AssignedShard) -> bool:
    reports = [held.document for held in state.shards_of(shard.replica)]
    return any(r.phase == "stopped" and r.attempt == shard.attempt for r in reports)


def check_routes(state: FleetState) -> None:
    """R7: no node is told to end, or to start anew, what routers may choose."""
    orders = told(state)
    for held in state.endpoints.values():
        for endpoint in held.document.endpoints:
            order = orders[endpoint.node, endpoint.replica]
            if not endpoint.unrouted:
                assert order.goal == "run"
                assert endpoint.incarnation.startswith(f"{order.attempt}.")


def check_ends(before: Told, state: FleetState) -> None:
    """R1: what a node ran goes on until a document of control's says that it ends."""
    orders = told(state)
    for (node, replica), order in before.items():
        held = state.replica(replica)
        if order.goal == "run" and held is not None and held.document.goal == "run":
            assert orders[node, replica].goal == "run"


def check_starts(state: FleetState) -> None:
    """R1: no node is told of a replica before a document of control's decides it."""
    decided = {held.document.id for held in state.replicas.values()}
    decided |= {
        ReplicaId(held.document.id)
        for subject, held in state.gone.items()
        if subject.startswith(REPLICAS)
    }
    newest = {id_.rpartition("-")[0]: int(id_.rpartition("-")[2]) for id_ in decided}
    for _, replica in told(state):
        slot, _, generation = replica.rpartition("-")
        assert int(generation) <= newest[slot]


def gist(state: FleetState) -> dict[str, object]:
    """All that stands, without what a second decision may write anew: ids, causes and sequences."""
    return {
        "replicas": {key: held.document for key, held in state.replicas.items()},
        "endpoints": {key: held.document for key, held in state.endpoints.items()},
        "verdicts": {key: held.document for key, held in state.verdicts.items()},
        "assignments": {
            key: [replace(shard, cause=None) for shard in held.document.shards]
            for key, held in state.assignments.items()
        },
        "gone": {subject: held.document for subject, held in state.gone.items()},
    }


# spec: C5 P5 R1 R7 L2
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_decision_cut_anywhere_is_safe_and_comes_to_the_same_end(
    scenario: Callable[[], Fleet],
) -> None:
    fleet, cuts = scenario(), 0
    for drafts in decisions(fleet):
        models = dict(fleet.models or {})
        whole = folded(fleet, drafts)
        for length in range(len(drafts)):
            state = folded(fleet, drafts[:length])
            check_cards(state)
            check_routes(state)
            check_ends(told(fleet.state), state)
            check_starts(state)
            again = decide(state, models, fleet.silence(), fleet.now).drafts
            fold(state, again)
            assert gist(state) == gist(whole), [draft.type for draft in drafts[:length]]
            assert decide(state, models, fleet.silence(), fleet.now).drafts == ()
            cuts += 1
    assert cuts > 3
