"""Why something is as it is, out of one state and the log below it. Shell: it reads what a walk asks for."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar, get_args

from msgspec import Struct

from schemas import codec, frames, history
from schemas.ids import GpuUuid, ModelName, NodeId, ReplicaId
from services.control.answering.pages import Seen
from services.control.answering.past import BadQuery, target_of
from services.fleet.nearest import near
from services.fleet.telling import why, why_answers
from services.fleet.telling.asking import Ask, Asking, Find, Past
from services.fleet.telling.happened import Happened
from services.fleet.telling.swaps import refused_since
from services.log.connect import Connection
from services.log.finding import Finder
from services.log.history import bounds

T = TypeVar("T")


class Question(Struct, frozen=True):
    """All that is taken from one state."""

    kind: history.WhyKind
    name: str
    sequence: int
    answer: tuple[str, ...]
    """How it is."""
    walk: why.Walk
    """Tells how it came to be so."""
    names: Sequence[str]
    """What else might have been meant; of what is there, nothing."""


def question(kind: str, name: str, seen: Seen) -> Question:
    """Takes tens of milliseconds of a large fleet. Raises BadQuery."""
    for known in get_args(history.WhyKind):
        if known == kind:
            target_of(known, name)
            answer, walk = _question(known, name, seen)
            names = () if answer else _names(known, seen)
            return Question(known, name, seen.state.sequence, answer, walk, names)
    raise BadQuery(f"`{kind[:40]}` is not one of {', '.join(get_args(history.WhyKind))}")


async def tell_why(connection: Connection, asked: Question) -> frames.Frame:
    """Raises what reading LOG raises."""
    kind, name, sequence, answer = asked.kind, asked.name, asked.sequence, asked.answer
    finder = Finder(connection, sequence)
    story = await walked(asked.walk, finder)
    refused = await walked(refused_since(), finder) if kind == "model" else ""
    if answer or story.found:
        return history.Why(
            as_of_seq=sequence,
            target=kind,
            name=name,
            answer=(*(answer or (f"there is no {kind} {name} now",)), *filter(None, [refused])),
            chain=story.rows(),
            missing=tuple(story.missing),
        )
    similar = await asyncio.to_thread(near, name, asked.names)
    kept = await bounds(connection)
    since = f", {codec.rfc3339(kept.first_stamp)}" if kept.first_stamp else ""
    hint = f"did you mean {' or '.join(similar)}? " if similar else ""
    return frames.Refusal(
        as_of_seq=sequence,
        code="not_found",
        message=f"no {kind} `{name}`",
        why=f"{hint}{refused}{'; ' if refused else ''}"
        f"history is kept from sequence {kept.first:,}{since}",
    )


class _Over(Struct, Generic[T], frozen=True):
    """A walk has ended."""

    result: T


async def walked(walk: Asking[T], finder: Finder) -> T:
    """What the walk returns, over the log up to where the finder reads. It may have much to look through."""
    found: list[Happened] | None = None
    while True:
        match await asyncio.to_thread(_step, walk, found):
            case _Over(result):
                return result
            case Past(subjects):
                found = await finder.past(subjects)
            case Find(id=event, near=sequence, hints=hints):
                one = await finder.find(event, sequence, hints)
                found = [] if one is None else [one]


def _step(walk: Asking[T], found: list[Happened] | None) -> Ask | _Over[T]:
    try:
        return next(walk) if found is None else walk.send(found)
    except StopIteration as end:
        return _Over(end.value)


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
            return why_answers.node_answer(state, live, node), why.why_node(node)
        case "gpu":
            gpu = GpuUuid(name)
            return why_answers.gpu_answer(state, live, gpu), why.why_gpu(state, gpu)


def _names(kind: history.WhyKind, seen: Seen) -> list[str]:
    state = seen.state
    match kind:
        case "replica":
            return sorted(held.document.id for held in state.replicas.values())
        case "model":
            return sorted(seen.current.catalog.models)
        case "node":
            return sorted(held.document.node for held in state.infos.values())
        case "gpu":
            return sorted(
                card.uuid for held in state.infos.values() for card in held.document.cards
            )
