"""Which node and which cards a replica gets, or why none. Pure; knows nothing of the log.

A refusal is a value: each node answers with the first predicate it failed and its numbers. The
order of the predicates: alive, readable, engine, version, then class, cards and their memory (or
cores and memory), then ports. `explain` asks the same predicates, so it gives the placer's verdict.

Order of preference (P1, P7). GPU: a partly used node before a free one, no whole node opened, no
degraded card, the fewest cards left, the fewest replicas of the model there, the fewest starts under
way there, id. CPU: the fewest replicas of the model there, the fewest CPU replicas there, the fewest
starts under way there, id. A gang takes whole nodes of the one fabric that has the fewest to spare.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec import Struct

from schemas.catalog import GpuNeed, Model
from schemas.documents import Card, EngineOnNode, NodeCondition, NodeRefusal
from schemas.ids import EngineName, GpuUuid, ModelName, NodeId

RULES = 1
"""Version of these rules; recorded with each decision. Another order or predicate is another version."""

CARD_RESERVE = 0.08
"""Share of a card that may be taken by others when a model asks for the whole card: engines leave it free."""


class Candidate(Struct, kw_only=True):
    """One node as the placer sees it. `Room` keeps it current within a pass."""

    node: NodeId
    condition: NodeCondition = "alive"
    readable: bool = True
    """False: its last description could not be read, so it gets nothing new."""
    fabric: str = ""
    engines: tuple[EngineOnNode, ...] = ()
    cards: tuple[Card, ...] = ()
    held: set[GpuUuid]
    millicores_free: int
    """Whole numbers, so that sums do not depend on their order."""
    memory_free: int
    ports: tuple[int, int]
    ports_used: set[int]
    models: dict[ModelName, int]
    """Replicas there by model."""
    cpu_replicas: int = 0
    starts: int = 0
    """Replicas there that are not ready yet."""


class Shape(Struct, frozen=True):
    """One shard's place on a node."""

    node: NodeId
    gpus: tuple[GpuUuid, ...]
    port: int
    rendezvous_port: int = 0


class Placed(Struct, frozen=True):
    """Where the replica goes, in rank order."""

    shards: tuple[Shape, ...]


class NotAlive(Struct, frozen=True, tag="not_alive"):
    """The node is silent."""

    condition: NodeCondition


class NotReadable(Struct, frozen=True, tag="info_unreadable"):
    """What the node last said of itself could not be read."""


class EngineMissing(Struct, frozen=True, tag="engine_missing"):
    """The node has no such engine environment."""

    engine: EngineName
    found: tuple[EngineName, ...]


class EngineVersion(Struct, frozen=True, tag="engine_version"):
    """The environment there is another version than the catalog pins."""

    engine: EngineName
    wanted: str
    found: str


class OtherClass(Struct, frozen=True, tag="gpu_class"):
    """No card of the class."""

    wanted: str
    found: tuple[str, ...]


class TooFewCards(Struct, frozen=True, tag="too_few_cards"):
    """Not enough usable cards of the class; each card counts once, the first match wins."""

    wanted: int
    unhealthy: int
    held: int
    short_of_memory: int
    free: int


class NotWhole(Struct, frozen=True, tag="not_whole"):
    """A gang takes whole nodes: every card healthy, unused and free of foreign memory."""

    unhealthy: int
    held: int
    foreign: int


class NoFabric(Struct, frozen=True, tag="no_fabric"):
    """A gang needs nodes whose cards can reach each other."""


class FabricTooSmall(Struct, frozen=True, tag="fabric_too_small"):
    """The node is whole, but its fabric has too few such nodes."""

    fabric: str
    wanted: int
    whole: int


class TooFewCores(Struct, frozen=True, tag="too_few_cores"):
    """The node's cores are given to others."""

    wanted: float
    free: float


class TooLittleMemory(Struct, frozen=True, tag="too_little_memory"):
    """The node's memory is given to others."""

    wanted_bytes: int
    free_bytes: int


class NoPort(Struct, frozen=True, tag="no_port"):
    """Every port of the node's range is given."""

    first: int
    last: int


Refusal = (
    NotAlive
    | NotReadable
    | EngineMissing
    | EngineVersion
    | OtherClass
    | TooFewCards
    | NotWhole
    | NoFabric
    | FabricTooSmall
    | TooFewCores
    | TooLittleMemory
    | NoPort
)


class Fits(Struct, frozen=True):
    """The node can take the shard. Lower `order` is better."""

    shape: Shape
    order: tuple[int, ...]


class Unplaceable(Struct, frozen=True):
    """No node can take it, and the first predicate that each one failed."""

    refusals: dict[NodeId, Refusal]


def place(model: Model, candidates: Sequence[Candidate]) -> Placed | Unplaceable:
    """The best place for one more replica of the model. Ties go to the lower node id."""
    answers = explain(model, candidates)
    fitting = sorted(
        (found for found in answers.values() if isinstance(found, Fits)),
        key=lambda found: (found.order, found.shape.node),
    )
    if not fitting:
        refusals = {n: answer for n, answer in answers.items() if not isinstance(answer, Fits)}
        return Unplaceable(refusals)
    return Placed(tuple(found.shape for found in fitting[: model.profile.nodes]))


def explain(model: Model, candidates: Iterable[Candidate]) -> dict[NodeId, Fits | Refusal]:
    """Every node's answer, by node id."""
    ordered = sorted(candidates, key=lambda candidate: candidate.node)
    answers = {candidate.node: fit(model, candidate) for candidate in ordered}
    return _one_fabric(model, ordered, answers) if model.profile.nodes > 1 else answers


def fit(model: Model, candidate: Candidate) -> Fits | Refusal:
    """The node's own answer, without regard to other nodes."""
    refused = _cannot_run(model, candidate)
    if refused is not None:
        return refused
    gpu = model.profile.gpu
    found = _cpu(model, candidate) if gpu is None else _gpu(model, gpu, candidate)
    if not isinstance(found, Fits):
        return found
    wanted = 1 if model.profile.nodes == 1 else 2
    ports = free_ports(candidate, wanted)
    if len(ports) < wanted:
        return NoPort(*candidate.ports)
    shape = Shape(found.shape.node, found.shape.gpus, *ports)
    return Fits(shape, found.order)


def _cannot_run(model: Model, candidate: Candidate) -> Refusal | None:
    engine = model.profile.engine
    if candidate.condition != "alive":
        return NotAlive(candidate.condition)
    if not candidate.readable:
        return NotReadable()
    found = [e for e in candidate.engines if (e.name, e.kind) == (engine.name, engine.kind)]
    if not found:
        return EngineMissing(engine.name, tuple(sorted(e.name for e in candidate.engines)))
    if not _is_version(found[0].version, engine.version):
        return EngineVersion(engine.name, engine.version, found[0].version)
    return None


def _is_version(found: str, pin: str) -> bool:
    """A pin of `0.32` is kept by 0.32 and 0.32.1, not by 0.320."""
    return not pin or found == pin or found.startswith(f"{pin}.")


def _gpu(model: Model, need: GpuNeed, candidate: Candidate) -> Fits | Refusal:
    of_class = [card for card in candidate.cards if card.gpu_class == need.gpu_class]
    if not of_class:
        return OtherClass(need.gpu_class, tuple(sorted({c.gpu_class for c in candidate.cards})))
    if model.profile.nodes > 1 and (why := _not_whole(candidate)) is not None:
        return why
    usable = _usable(need, of_class, candidate.held)
    if len(usable) < need.count:
        return _too_few(need, of_class, candidate.held, len(usable))
    usable.sort(key=lambda card: card.health == "degraded")  # Stable: the node's own order else.
    taken = usable[: need.count]
    order = (
        int(not candidate.held),
        int(_not_whole(candidate) is None),
        sum(card.health == "degraded" for card in taken),
        len(usable) - need.count,
        candidate.models.get(model.name, 0),
        candidate.starts,
    )
    return Fits(Shape(candidate.node, tuple(card.uuid for card in taken), 0), order)


def _usable(need: GpuNeed, cards: Iterable[Card], held: set[GpuUuid]) -> list[Card]:
    return [
        card
        for card in cards
        if _sound(card) and card.uuid not in held and _free_bytes(card) >= _wanted(need, card)
    ]


def _sound(card: Card) -> bool:
    """Unknown counts as unhealthy; degraded is usable."""
    return card.health in ("healthy", "degraded")


def _free_bytes(card: Card) -> int:
    return card.memory_bytes - card.foreign_bytes


def _wanted(need: GpuNeed, card: Card) -> float:
    whole = card.memory_bytes * (1 - CARD_RESERVE)
    return whole if need.memory_bytes is None else need.memory_bytes


def _too_few(need: GpuNeed, cards: list[Card], held: set[GpuUuid], free: int) -> TooFewCards:
    sound = [card for card in cards if _sound(card)]
    taken = sum(card.uuid in held for card in sound)
    return TooFewCards(
        wanted=need.count,
        unhealthy=len(cards) - len(sound),
        held=taken,
        short_of_memory=len(sound) - taken - free,
        free=free,
    )


def _not_whole(candidate: Candidate) -> NotWhole | None:
    unhealthy = sum(card.health != "healthy" for card in candidate.cards)
    held = sum(card.uuid in candidate.held for card in candidate.cards)
    foreign = sum(card.foreign_bytes > 0 for card in candidate.cards)
    return NotWhole(unhealthy, held, foreign) if unhealthy or held or foreign else None


def _cpu(model: Model, candidate: Candidate) -> Fits | Refusal:
    need = model.profile.cpu
    cores, memory_bytes = (0.0, 0) if need is None else (need.cores, need.memory_bytes)
    if millicores(cores) > candidate.millicores_free:
        return TooFewCores(cores, candidate.millicores_free / 1000)
    if memory_bytes > candidate.memory_free:
        return TooLittleMemory(memory_bytes, candidate.memory_free)
    order = (candidate.models.get(model.name, 0), candidate.cpu_replicas, candidate.starts)
    return Fits(Shape(candidate.node, (), 0), order)


def millicores(cores: float) -> int:
    """Thousandths of a core."""
    return round(cores * 1000)


def free_ports(candidate: Candidate, wanted: int, after: int | None = None) -> list[int]:
    """The first free ports of the node's range; behind `after`, coming round at the end."""
    first, last = candidate.ports
    ports = list(range(first, last + 1))
    if after is not None and first <= after <= last:
        cut = after - first + 1
        ports = ports[cut:] + ports[: cut - 1]
    free = (port for port in ports if port not in candidate.ports_used)
    return [port for port, _ in zip(free, range(wanted), strict=False)]


def _one_fabric(
    model: Model, candidates: Sequence[Candidate], answers: dict[NodeId, Fits | Refusal]
) -> dict[NodeId, Fits | Refusal]:
    """For a gang: only nodes of the fabric that has enough whole nodes, and the fewest to spare."""
    fabrics = {c.node: c.fabric for c in candidates}
    whole: dict[str, int] = {}
    for node, answer in answers.items():
        if isinstance(answer, Fits) and fabrics[node]:
            whole[fabrics[node]] = whole.get(fabrics[node], 0) + 1
    ranked = {fabric: rank for rank, (_, fabric) in enumerate(sorted(_turned(whole)))}
    return {
        node: _in_fabric(answer, fabrics[node], model.profile.nodes, whole, ranked)
        for node, answer in answers.items()
    }


def _turned(counts: dict[str, int]) -> Iterable[tuple[int, str]]:
    return ((count, name) for name, count in counts.items())


def _in_fabric(
    answer: Fits | Refusal, fabric: str, wanted: int, whole: dict[str, int], ranked: dict[str, int]
) -> Fits | Refusal:
    if not isinstance(answer, Fits):
        return answer
    if not fabric:
        return NoFabric()
    if whole[fabric] < wanted:
        return FabricTooSmall(fabric, wanted, whole[fabric])
    return Fits(answer.shape, (ranked[fabric], *answer.order))


def reason(refusal: Refusal) -> str:
    """A stable word for the predicate that failed."""
    return str(refusal.__struct_config__.tag)


def describe(refusal: Refusal) -> str:  # noqa: C901 - one flat case a refusal
    """The numbers, for people."""
    match refusal:
        case NotAlive(condition):
            return f"the node is {condition}"
        case NotReadable():
            return "the node's last description could not be read"
        case EngineMissing(engine, found):
            return f"no engine {engine}; the node has {', '.join(found) or 'none'}"
        case EngineVersion(engine, wanted, found):
            return f"{engine} {found or 'of unknown version'}, the catalog pins {wanted}"
        case OtherClass(wanted, found):
            return f"no card of class {wanted}; the node has {', '.join(found) or 'no cards'}"
        case TooFewCards(wanted, unhealthy, held, short, free):
            return (
                f"wants {wanted} cards, {free} free "
                f"({held} held, {unhealthy} unhealthy, {short} short of memory)"
            )
        case NotWhole(unhealthy, held, foreign):
            return (
                f"not a whole node: {held} cards held, {unhealthy} not healthy, "
                f"{foreign} with foreign memory"
            )
        case NoFabric():
            return "the node belongs to no fabric"
        case FabricTooSmall(fabric, wanted, whole):
            return f"fabric {fabric} has {whole} whole nodes, {wanted} wanted"
        case TooFewCores(wanted, free):
            return f"wants {wanted:g} cores, {free:g} free"
        case TooLittleMemory(wanted, free):
            return f"wants {_mib(wanted)} MiB, {_mib(free)} MiB free"
        case NoPort(first, last):
            return f"no free port in {first}-{last}"
        case _:
            assert_never(refusal)


def _mib(number_bytes: int) -> int:
    return number_bytes >> 20


def summarize(unplaceable: Unplaceable) -> tuple[NodeRefusal, ...]:
    """Nodes by the predicate they failed, the commonest first; the detail is the first node's."""
    by_reason: dict[str, list[Refusal]] = {}
    for _, refusal in sorted(unplaceable.refusals.items()):
        by_reason.setdefault(reason(refusal), []).append(refusal)
    if not by_reason:
        return (NodeRefusal(reason="no_nodes", nodes=0, detail="no node has registered yet"),)
    counted = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        NodeRefusal(reason=word, nodes=len(found), detail=describe(found[0]))
        for word, found in counted
    )
