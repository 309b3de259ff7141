"""Why something is as it is, out of one state and the log below it. Shell: it reads what a walk asks for."""

from typing import TypeVar, get_args

from schemas import codec, frames, history
from schemas.ids import GpuUuid, ModelName, NodeId, ReplicaId
from services.control.answering.pages import Seen
from services.control.answering.past import BadQuery, target_of
from services.fleet.nearest import near
from services.fleet.telling import why, why_answers
from services.fleet.telling.asking import Asking, Find, Past
from services.fleet.telling.happened import Happened
from services.log.connect import Connection
from services.log.finding import Finder
from services.log.history import bounds

T = TypeVar("T")


async def tell_why(connection: Connection, kind: str, name: str, seen: Seen) -> frames.Frame:
    """Raises BadQuery, and what reading LOG raises."""
    for known in get_args(history.WhyKind):
        if known == kind:
            target_of(known, name)
            return await _tell(connection, known, name, seen)
    raise BadQuery(f"`{kind}` is not one of {', '.join(get_args(history.WhyKind))}")


async def _tell(
    connection: Connection, kind: history.WhyKind, name: str, seen: Seen
) -> frames.Frame:
    sequence = seen.state.sequence
    answer, walk = _question(kind, name, seen)
    similar = near(name, _names(kind, seen))
    story = await walked(walk, Finder(connection, sequence))
    if answer or story.found:
        return history.Why(
            as_of_seq=sequence,
            target=kind,
            name=name,
            answer=answer or (f"there is no {kind} {name} now",),
            chain=story.rows(),
            missing=tuple(story.missing),
        )
    kept = await bounds(connection)
    since = f", {codec.rfc3339(kept.first_stamp)}" if kept.first_stamp else ""
    hint = f"did you mean {' or '.join(similar)}? " if similar else ""
    return frames.Refusal(
        as_of_seq=sequence,
        code="not_found",
        message=f"no {kind} `{name}`",
        why=f"{hint}history is kept from sequence {kept.first:,}{since}",
    )


async def walked(walk: Asking[T], finder: Finder) -> T:
    """What the walk returns, over the log up to where the finder reads."""
    found: list[Happened] | None = None
    while True:
        try:
            ask = next(walk) if found is None else walk.send(found)
        except StopIteration as end:
            result: T = end.value
            return result
        match ask:
            case Past():
                found = await finder.past(ask.subjects)
            case Find():
                one = await finder.find(ask.id, ask.near, ask.hints)
                found = [] if one is None else [one]


def _question(kind: history.WhyKind, name: str, seen: Seen) -> tuple[tuple[str, ...], why.Walk]:
    """How it is, and the walk that tells how it came to be so."""
    state, live = seen.state, seen.live
    match kind:
        case "replica":
            replica = ReplicaId(name)
            return why_answers.replica_answer(state, live, replica), why.why_replica(state, replica)
        case "model":
            found = seen.current.catalog.resolve(name)
            model = ModelName(name) if found is None else found.name
            answer = why_answers.model_answer(state, seen.current.catalog, live, model)
            return answer, why.why_model(state, model)
        case "node":
            node = NodeId(name)
            return why_answers.node_answer(state, live, node), why.why_node(state, node)
        case "gpu":
            gpu = GpuUuid(name)
            return why_answers.gpu_answer(state, live, gpu), why.why_gpu(state, gpu)


def _names(kind: history.WhyKind, seen: Seen) -> list[str]:
    state = seen.state
    match kind:
        case "replica":
            return sorted(state.replicas_by_id)
        case "model":
            return sorted(seen.current.catalog.models)
        case "node":
            return sorted(held.document.node for held in state.infos.values())
        case "gpu":
            return sorted(
                card.uuid for held in state.infos.values() for card in held.document.cards
            )
