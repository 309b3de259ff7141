"""Gangs: whole nodes, all of one fabric. Pure."""

from collections.abc import Iterable, Sequence

from schemas.catalog import Model
from schemas.ids import NodeId
from services.control.deciding.candidates import Candidate, Fits
from services.control.deciding.refusals import FabricTooSmall, NoFabric, NotWhole, Refusal


def not_whole(candidate: Candidate) -> NotWhole | None:
    """What keeps the node from being whole; None: it is."""
    unhealthy = sum(card.health != "healthy" for card in candidate.cards)
    held = sum(card.uuid in candidate.held for card in candidate.cards)
    foreign = sum(card.foreign_bytes > 0 for card in candidate.cards)
    return NotWhole(unhealthy, held, foreign) if unhealthy or held or foreign else None


def is_whole(candidate: Candidate) -> bool:
    """Nothing keeps it from being whole. Asked of every node, and told at the first card that is not."""
    held = candidate.held
    return all(
        card.uuid not in held and card.health == "healthy" and card.foreign_bytes <= 0
        for card in candidate.cards
    )


def one_fabric(
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
