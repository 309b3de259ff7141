"""What holds after every pass, whatever happened before it."""

from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import subjects
from schemas.catalog import GpuNeed, Model
from schemas.documents import Card, LastError, NodeInfo, ReplicaDocument, ShardPhase
from schemas.ids import GpuUuid, NodeId, ReplicaId, RouterId
from services.control.deciding.reconcile import decide
from services.fleet.state import FleetState
from tests.builders import a_model, a_node
from tests.support.deciding import Fleet
from tests.support.examples import examples

GIB = 1 << 30
NODES = ("node-1", "node-2", "node-3")
PHASES: tuple[ShardPhase, ...] = ("starting", "loading", "ready", "failed")
ROUTER = RouterId("router-1")


def a_machine(name: str, cards: int) -> NodeInfo:
    return replace(
        a_node(name, cores=3.0, memory_gib=4),
        ports=(17000, 17004),
        cards=tuple(
            Card(uuid=GpuUuid(f"{name}-{n}"), gpu_class="l4", memory_bytes=24 * GIB)
            for n in range(cards)
        ),
    )


def on_cards(model: Model, count: int) -> Model:
    need = GpuNeed(gpu_class="l4", count=count)
    return replace(model, profile=replace(model.profile, gpu=need, cpu=None))


@st.composite
def catalogs(draw: st.DrawFn) -> tuple[Model, ...]:
    models: list[Model] = []
    for name in draw(st.sets(st.sampled_from(["alpha", "beta", "gamma"]))):
        model = a_model(
            name,
            replicas=draw(st.integers(0, 3)),
            source=f"/models/{draw(st.integers(1, 2))}.gguf",
        )
        cards = draw(st.integers(0, 2))
        model = replace(
            model,
            profile_hash=f"{model.profile_hash}-{cards}",
            patience_seconds=draw(st.sampled_from([None, 10.0, 60.0])),
            drain_grace_seconds=draw(st.sampled_from([None, 0.0, 30.0])),
            min_ready=draw(st.sampled_from([None, 0])),
        )
        models.append(on_cards(model, cards) if cards else model)
    return tuple(models)


Step = Callable[[Fleet], None]


def _swap(models: tuple[Model, ...]) -> Step:
    return lambda fleet: fleet.swap(*models)


def _wait(seconds: float, silent: frozenset[str]) -> Step:
    def step(fleet: Fleet) -> None:
        fleet.unanswered = {NodeId(node) for node in silent}
        fleet.wait(seconds, *silent)

    return step


def _obey(silent: frozenset[str]) -> Step:
    return lambda fleet: fleet.obey(*silent)


def _report(index: int, phase: ShardPhase, port_in_use: bool) -> Step:
    def step(fleet: Fleet) -> None:
        told = [r for r in _replicas(fleet.state) if r.id in fleet.assigned(r.shards[0].node)]
        if told:
            failure = "port_in_use" if port_in_use else "killed"
            error = LastError(failure=failure, message=failure) if phase == "failed" else None
            fleet.report(told[index % len(told)], phase, error=error)

    return step


def _apply_routes(fleet: Fleet) -> None:
    fleet.routers[ROUTER] = fleet.state.sequence


def _new_agent(node: str, incarnation: int) -> Step:
    def step(fleet: Fleet) -> None:
        info = fleet.state.info(NodeId(node))
        assert info is not None
        fleet.script.add(replace(info.document, incarnation=f"agent-{incarnation}"))

    return step


def _hear_again(fleet: Fleet) -> None:
    fleet.hearing = 1.0


silent_nodes = st.frozensets(st.sampled_from(NODES), max_size=2)
steps = st.one_of(
    st.builds(_swap, catalogs()),
    st.builds(_wait, st.sampled_from([1.0, 6.0, 15.0, 61.0]), silent_nodes),
    st.builds(_obey, silent_nodes),
    st.builds(_report, st.integers(0, 9), st.sampled_from(PHASES), st.booleans()),
    st.just(_apply_routes),
    st.builds(_new_agent, st.sampled_from(NODES), st.integers(2, 9)),
    st.just(_hear_again),
)


def _replicas(state: FleetState) -> list[ReplicaDocument]:
    return sorted((held.document for held in state.replicas.values()), key=lambda r: r.id)


def check_room(state: FleetState) -> None:
    """No card, port or core is given to two replicas."""
    cards = Counter(gpu for r in _replicas(state) for plan in r.shards for gpu in plan.gpus)
    assert all(count == 1 for count in cards.values()), cards
    ports = Counter((plan.node, plan.port) for r in _replicas(state) for plan in r.shards)
    assert all(count == 1 for count in ports.values()), ports
    for info in state.infos.values():
        node = info.document
        plans = [p for r in _replicas(state) for p in r.shards if p.node == node.node]
        assert sum(plan.cores for plan in plans) <= node.cores
        assert sum(plan.memory_bytes for plan in plans) <= node.memory_bytes


def check_references(state: FleetState) -> None:
    """Assignments and endpoints name replicas that are there."""
    known = {replica.id for replica in _replicas(state)}
    for assignment in state.assignments.values():
        assert {shard.replica for shard in assignment.document.shards} <= known
    for shard in state.endpoints.values():
        assert {endpoint.replica for endpoint in shard.document.endpoints} <= known


def check_ids(fleet: Fleet, seen: dict[ReplicaId, str]) -> None:
    """A replica id never comes back for another replica: it stays in its place, with its profile."""
    for replica in _replicas(fleet.state):
        stands = f"{replica.shards[0].node} {replica.profile_hash} {replica.revision}"
        assert seen.setdefault(replica.id, stands) == stands


def a_fleet() -> Fleet:
    return Fleet(*(a_machine(name, cards) for name, cards in zip(NODES, (0, 1, 2), strict=True)))


# spec: P5 R1 L8
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(steps, st.floats(0, 1)), max_size=25))
def test_every_pass_is_safe_and_leaves_nothing_to_decide(script: list[tuple[Step, float]]) -> None:
    fleet, seen = a_fleet(), dict[ReplicaId, str]()
    for step, share in script:
        step(fleet)
        drafts = fleet.ask().drafts
        fleet.fold(drafts[: round(share * len(drafts))])  # A crash between two batches.
        check_room(fleet.state)
        check_ids(fleet, seen)
        fleet.turn()
        check_room(fleet.state)
        check_references(fleet.state)
        check_ids(fleet, seen)
        again = fleet.ask().drafts
        assert again == (), [(draft.type, draft.subject) for draft in again]


# spec: L4
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(steps, max_size=15), st.randoms(use_true_random=False))
def test_a_state_folded_in_another_order_decides_the_same(script: list[Step], rng: Random) -> None:
    fleet = a_fleet()
    for step in script:
        step(fleet)
        other, messages = FleetState(), list(fleet.script.log)
        rng.shuffle(messages)
        for message in (fleet.script.log[0], *messages):
            other.apply(*message)
        mine = fleet.ask()
        assert decide(other, fleet.models, fleet.silence(), fleet.now) == mine
        fleet.fold(mine.drafts)


# spec: R1
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(steps, max_size=15), catalogs())
def test_settles_once_nothing_happens_any_more(script: list[Step], last: tuple[Model, ...]) -> None:
    fleet = a_fleet()
    for step in script:
        step(fleet)
        fleet.turn()
    fleet.swap(*last)
    fleet.unanswered.clear()
    fleet.hearing = 1000.0
    for _ in range(40):
        fleet.wait(11)
        fleet.obey()
        fleet.turn()
        fleet.routers[ROUTER] = fleet.state.sequence
    fleet.wait(11)
    assert fleet.turn().drafts == ()
    assert {r.model for r in _replicas(fleet.state)} <= {model.name for model in last}
    for model in last:
        placement = fleet.state.placement(model.name)
        assert placement is not None
        if placement.document.verdict == "placed":
            assert fleet.goals(model.name) == ["run"] * model.replicas
            assert len(fleet.endpoints(model.name)) == model.replicas
    check_room(fleet.state)


# spec: C5
def test_nothing_is_left_of_a_model_that_left() -> None:
    fleet = Fleet(a_machine("node-1", 0), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.swap()
    for _ in range(4):
        fleet.turn()
        fleet.obey()
    held = [*fleet.state.replicas, *fleet.state.endpoints, *fleet.state.shards]
    assert held == []
    assert fleet.state.placements == {}
    assert fleet.state.held(subjects.replica(a_model().name, 0)) is not None  # Gone, with its id.
