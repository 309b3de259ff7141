from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import subjects
from schemas.catalog import CpuNeed, EngineEnvironment, GpuNeed, Model
from schemas.documents import Card, CardHealth, EngineOnNode
from schemas.ids import EngineName, GpuUuid, ModelName, NodeId
from services.control.deciding.candidates import Candidate, Fits, Placed
from services.control.deciding.placement import explain, free_ports, place
from services.control.deciding.refusals import (
    EngineMissing,
    EngineVersion,
    FabricTooSmall,
    NoFabric,
    NoPort,
    NotAlive,
    NotReadable,
    NotWhole,
    OtherClass,
    TooFewCards,
    TooFewCores,
    TooLittleMemory,
    Unplaceable,
    describe,
    reason,
    summarize,
)
from tests.builders import a_model

GIB = 1 << 30
LLAMACPP = EngineOnNode(name=EngineName("llamacpp"), kind="llamacpp", version="1.2.3")


def a_card(
    name: str, gpu_class: str = "l4", health: CardHealth = "healthy", foreign: int = 0
) -> Card:
    return Card(
        uuid=GpuUuid(name),
        gpu_class=gpu_class,
        memory_bytes=24 * GIB,
        foreign_bytes=foreign,
        health=health,
    )


def a_candidate(name: str, cards: int = 0, held: int = 0, **changes: object) -> Candidate:
    uuids = [f"{name}-{n}" for n in range(cards)]
    candidate = Candidate(
        node=NodeId(name),
        engines=(LLAMACPP,),
        cards=tuple(a_card(uuid) for uuid in uuids),
        held={GpuUuid(uuid) for uuid in uuids[:held]},
        millicores_free=8000,
        memory_free=32 * GIB,
        ports=(17000, 17009),
        ports_used=set(),
        models={},
    )
    for field, value in changes.items():
        setattr(candidate, field, value)
    return candidate


def wants_cards(
    count: int = 1, gpu_class: str = "l4", nodes: int = 1, memory: int | None = None
) -> Model:
    model = a_model()
    need = GpuNeed(gpu_class=gpu_class, count=count, memory_bytes=memory)
    return replace(model, profile=replace(model.profile, gpu=need, cpu=None, nodes=nodes))


def wants_cores(cores: float = 1.0, memory_gib: int = 1, name: str = "tiny") -> Model:
    model = a_model(name)
    need = CpuNeed(cores=cores, memory_bytes=memory_gib * GIB)
    return replace(model, profile=replace(model.profile, cpu=need))


def pinned(version: str) -> Model:
    model = a_model()
    engine = EngineEnvironment(name=EngineName("llamacpp"), kind="llamacpp", version=version)
    return replace(model, profile=replace(model.profile, engine=engine))


def chosen(model: Model, *candidates: Candidate) -> str:
    found = place(model, candidates)
    assert isinstance(found, Placed), found
    return found.shards[0].node


def refused(model: Model, candidate: Candidate) -> object:
    return explain(model, [candidate])[candidate.node]


# spec: P1
def test_cards_come_from_a_partly_used_node_before_a_free_one() -> None:
    assert (
        chosen(wants_cards(), a_candidate("a", cards=4), a_candidate("b", cards=4, held=1)) == "b"
    )


# spec: P1
def test_a_free_node_is_not_opened_though_it_would_be_left_fuller() -> None:
    broken = a_candidate("a", cards=1)
    broken.cards = (*broken.cards, a_card("a-sick", health="unhealthy"))
    assert chosen(wants_cards(), broken, a_candidate("b", cards=8, held=1)) == "b"


# spec: P1
def test_of_partly_used_nodes_the_one_left_fullest_is_taken() -> None:
    nodes = a_candidate("a", cards=8, held=1), a_candidate("b", cards=8, held=6)
    assert chosen(wants_cards(2), *nodes) == "b"


# spec: P7
def test_a_node_that_is_not_whole_anyway_is_opened_before_a_whole_one() -> None:
    broken = a_candidate("b", cards=3)
    broken.cards = (*broken.cards, a_card("b-sick", health="unhealthy"))
    assert chosen(wants_cards(), a_candidate("a", cards=2), broken) == "b"


# spec: P4 P7
def test_a_degraded_card_is_taken_last() -> None:
    node = a_candidate("a", cards=1)
    node.cards = (a_card("worn", health="degraded"), *node.cards)
    found = place(wants_cards(), [node])
    assert isinstance(found, Placed)
    assert found.shards[0].gpus == ("a-0",)
    worn = a_candidate("b", cards=1, held=1)
    worn.cards = (*worn.cards, a_card("worn", health="degraded"))
    assert chosen(wants_cards(), worn, a_candidate("c", cards=2, held=1)) == "c"


# spec: P4
def test_unhealthy_and_unknown_cards_are_neither_used_nor_free() -> None:
    node = a_candidate("a", cards=2, held=1)
    node.cards = (*node.cards, a_card("x", health="unhealthy"), a_card("y", health="unknown"))
    assert refused(wants_cards(2), node) == TooFewCards(
        wanted=2, unhealthy=2, held=1, short_of_memory=0, free=1
    )


def test_a_card_with_foreign_memory_has_only_the_rest() -> None:
    node = a_candidate("a")
    node.cards = (a_card("shared", foreign=6 * GIB),)
    assert isinstance(refused(wants_cards(memory=18 * GIB), node), Fits)
    assert refused(wants_cards(memory=19 * GIB), node) == TooFewCards(
        wanted=1, unhealthy=0, held=0, short_of_memory=1, free=0
    )
    assert isinstance(refused(wants_cards(), node), TooFewCards)


# spec: P3
def test_a_gang_takes_whole_nodes_of_one_fabric() -> None:
    nodes = [
        a_candidate("a", cards=8, fabric="east"),
        a_candidate("b", cards=8, held=1, fabric="east"),
        a_candidate("c", cards=8, fabric="west"),
        a_candidate("d", cards=8, fabric="west"),
        a_candidate("e", cards=8),
    ]
    model = wants_cards(8, nodes=2)
    found = place(model, nodes)
    assert isinstance(found, Placed)
    assert [shape.node for shape in found.shards] == ["c", "d"]
    assert all(shape.rendezvous_port for shape in found.shards)
    answers = explain(model, nodes)
    assert answers[NodeId("a")] == FabricTooSmall("east", 2, 1)
    assert answers[NodeId("b")] == NotWhole(unhealthy=0, held=1, foreign=0)
    assert answers[NodeId("e")] == NoFabric()


# spec: P3
def test_a_gang_takes_the_fabric_with_the_fewest_to_spare() -> None:
    wide = [a_candidate(f"a{n}", cards=8, fabric="a-wide") for n in range(3)]
    tight = [a_candidate(f"b{n}", cards=8, fabric="b-tight") for n in range(2)]
    found = place(wants_cards(8, nodes=2), [*wide, *tight])
    assert isinstance(found, Placed)
    assert [shape.node for shape in found.shards] == ["b0", "b1"]


# spec: P1
@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=3), nodes=st.integers(1, 5))
def test_cpu_replicas_on_equal_nodes_differ_by_at_most_one(counts: list[int], nodes: int) -> None:
    candidates = [a_candidate(f"n{n}") for n in range(nodes)]
    by_node: Counter[str] = Counter({f"n{n}": 0 for n in range(nodes)})
    for number, replicas in enumerate(counts):
        model = wants_cores(0.1, 0, f"m{number}")
        by_model: Counter[str] = Counter({f"n{n}": 0 for n in range(nodes)})
        for _ in range(replicas):
            node = chosen(model, *candidates)
            taken = next(c for c in candidates if c.node == node)
            taken.cpu_replicas += 1
            taken.models[ModelName(model.name)] = taken.models.get(model.name, 0) + 1
            by_node[node] += 1
            by_model[node] += 1
        assert max(by_model.values()) - min(by_model.values()) <= 1
    assert max(by_node.values()) - min(by_node.values()) <= 1


def test_says_what_each_node_lacks() -> None:
    small = a_candidate("a", millicores_free=500)
    assert refused(wants_cores(), small) == TooFewCores(1.0, 0.5)
    assert refused(wants_cores(memory_gib=64), a_candidate("a")) == TooLittleMemory(
        64 * GIB, 32 * GIB
    )
    assert refused(wants_cards(gpu_class="h100"), a_candidate("a", cards=1)) == OtherClass(
        "h100", ("l4",)
    )
    assert refused(wants_cores(), a_candidate("a", condition="lost")) == NotAlive("lost")
    subject = subjects.node_shard(NodeId("a"), 3)
    assert refused(wants_cores(), a_candidate("a", unread=subject)) == NotReadable(subject)
    assert subject in describe(NotReadable(subject))
    full = a_candidate("a", ports=(17000, 17000), ports_used={17000})
    assert refused(wants_cores(), full) == NoPort(17000, 17000)


# spec: W3
def test_an_engine_that_is_missing_or_another_version_is_a_reason() -> None:
    node = a_candidate("a")
    assert refused(pinned("9.9"), node) == EngineVersion(EngineName("llamacpp"), "9.9", "1.2.3")
    assert isinstance(refused(pinned("1.2"), node), Fits)
    assert isinstance(refused(pinned("1.2.3"), node), Fits)
    assert isinstance(refused(pinned("1.20"), node), EngineVersion)
    assert refused(a_model(), a_candidate("a", engines=())) == EngineMissing(
        EngineName("llamacpp"), ()
    )


# spec: P6
def test_a_summary_counts_nodes_by_reason_the_commonest_first() -> None:
    found = place(
        wants_cores(),
        [
            a_candidate("a", condition="lost"),
            a_candidate("b", millicores_free=0),
            a_candidate("c", millicores_free=0),
        ],
    )
    assert isinstance(found, Unplaceable)
    assert [(r.reason, r.nodes, r.detail) for r in summarize(found)] == [
        ("too_few_cores", 2, "wants 1 cores, 0 free"),
        ("not_alive", 1, "the node is lost"),
    ]
    assert {reason(r) for r in found.refusals.values()} == {"too_few_cores", "not_alive"}
    assert all(describe(r) for r in found.refusals.values())


def test_no_node_at_all_is_a_reason_too() -> None:
    found = place(wants_cores(), [])
    assert isinstance(found, Unplaceable)
    assert [r.reason for r in summarize(found)] == ["no_nodes"]


def test_ports_come_round_behind_the_one_that_was_taken() -> None:
    node = a_candidate("a", ports=(17000, 17003), ports_used={17002})
    assert free_ports(node, 1) == [17000]
    assert free_ports(node, 3, after=17001) == [17003, 17000]


# spec: P7
def test_ties_go_to_the_lower_id_in_whatever_order_nodes_come() -> None:
    nodes = [a_candidate(name) for name in ("c", "a", "b")]
    assert chosen(wants_cores(), *nodes) == "a"
    assert chosen(wants_cores(), *reversed(nodes)) == "a"
