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
from heapq import nsmallest
from itertools import chain, islice

from schemas.catalog import GpuNeed, Model
from schemas.documents import Card
from schemas.ids import GpuUuid, NodeId
from services.control.deciding.candidates import Candidate, Fits, Placed, Shape, millicores
from services.control.deciding.gang import is_whole, not_whole, one_fabric
from services.control.deciding.refusals import (
    EngineMissing,
    EngineVersion,
    NoPort,
    NotAlive,
    NotReadable,
    OtherClass,
    Refusal,
    TooFewCards,
    TooFewCores,
    TooLittleMemory,
    Unplaceable,
)

RULES = 1
"""Version of these rules; recorded with each decision. Another order or predicate is another version."""

CARD_RESERVE = 0.08
"""Share of a card that may be taken by others when a model asks for the whole card: engines leave it free."""


def place(model: Model, candidates: Sequence[Candidate]) -> Placed | Unplaceable:
    """The best place for one more replica of the model. Ties go to the lower node id."""
    answers = explain(model, candidates)
    fitting = nsmallest(
        model.profile.nodes,
        (found for found in answers.values() if isinstance(found, Fits)),
        key=lambda found: (found.order, found.shape.node),
    )
    if not fitting:
        refusals = {n: answer for n, answer in answers.items() if not isinstance(answer, Fits)}
        return Unplaceable(refusals)
    return Placed(tuple(found.shape for found in fitting))


def explain(model: Model, candidates: Iterable[Candidate]) -> dict[NodeId, Fits | Refusal]:
    """Every node's answer, by node id."""
    ordered = sorted(candidates, key=lambda candidate: candidate.node)
    answers = {candidate.node: fit(model, candidate) for candidate in ordered}
    return one_fabric(model, ordered, answers) if model.profile.nodes > 1 else answers


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
    if candidate.unread:
        return NotReadable(candidate.unread)
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
    if model.profile.nodes > 1 and (why := not_whole(candidate)) is not None:
        return why
    usable = _usable(need, of_class, candidate.held)
    if len(usable) < need.count:
        return _too_few(need, of_class, candidate.held, len(usable))
    degraded = [card for card in usable if card.health == "degraded"]
    if degraded:  # Last, the node's own order else.
        usable = [card for card in usable if card.health != "degraded"] + degraded
    taken = usable[: need.count]
    order = (
        int(not candidate.held),
        int(is_whole(candidate)),
        max(0, need.count + len(degraded) - len(usable)),
        len(usable) - need.count,
        candidate.models.get(model.name, 0),
        candidate.starts,
    )
    return Fits(Shape(candidate.node, tuple(card.uuid for card in taken), 0), order)


def _usable(need: GpuNeed, cards: Iterable[Card], held: set[GpuUuid]) -> list[Card]:
    return [
        card
        for card in cards
        if card.uuid not in held and _sound(card) and _free_bytes(card) >= _wanted(need, card)
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


def _cpu(model: Model, candidate: Candidate) -> Fits | Refusal:
    need = model.profile.cpu
    cores, memory_bytes = (0.0, 0) if need is None else (need.cores, need.memory_bytes)
    if millicores(cores) > candidate.millicores_free:
        return TooFewCores(cores, candidate.millicores_free / 1000)
    if memory_bytes > candidate.memory_free:
        return TooLittleMemory(memory_bytes, candidate.memory_free)
    order = (candidate.models.get(model.name, 0), candidate.cpu_replicas, candidate.starts)
    return Fits(Shape(candidate.node, (), 0), order)


def free_ports(candidate: Candidate, wanted: int, after: int | None = None) -> list[int]:
    """The first free ports of the node's range; behind `after`, coming round at the end."""
    first, last = candidate.ports
    ports: Iterable[int] = range(first, last + 1)
    if after is not None and first <= after <= last:
        ports = chain(range(after + 1, last + 1), range(first, after))
    return list(islice((port for port in ports if port not in candidate.ports_used), wanted))
