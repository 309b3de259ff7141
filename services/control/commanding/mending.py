"""Documents whose last message cannot be read, and how they are put right (`services.fleet.remedies`).

Pure.
"""

from collections.abc import Iterator
from itertools import chain

from schemas import subjects
from schemas.documents import Document, Gone
from schemas.frames import Accepted
from schemas.ids import parse_replica
from schemas.recovery import BadDocument, BadDocuments, Mend
from services.control.commanding.commands import Actor, No, record, refuse, with_reason
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.drafts import Draft
from services.fleet.families import family_of
from services.fleet.remedies import VERB, Remedies, Remedy, writer_of
from services.fleet.state import FleetState, Unknown, Unreadable


def bad_documents(state: FleetState) -> BadDocuments:
    """All of them, by subject."""
    found: dict[str, Unreadable | Unknown] = {**state.unreadable, **state.unknown}
    remedies = Remedies(state)
    items = tuple(
        _row(state, subject, each, remedies.of(subject)) for subject, each in sorted(found.items())
    )
    return BadDocuments(as_of_seq=state.sequence, items=items)


def _row(
    state: FleetState, subject: str, found: Unreadable | Unknown, remedy: Remedy
) -> BadDocument:
    held = state.held(subject)
    optional = isinstance(found, Unknown) and found.optional
    return BadDocument(
        subject=subject,
        sequence=found.sequence,
        reason=_why(found),
        writer=writer_of(subject),
        last_good=0 if held is None else held.sequence,
        optional=optional,
        command="" if optional else remedy.command,
        waits=remedy.waits,
    )


def _why(found: Unreadable | Unknown) -> str:
    if isinstance(found, Unreadable):
        return found.reason
    return f"{found.type} v{found.version} is not known to this version"


def plan_mend(moment: Moment, request: Mend, actor: Actor) -> Planned:
    """Put one document right, or say why not."""
    refused = _refusal(moment.state, request)
    if refused is not None:
        return refuse("mend", request.reason, actor, refused, request.subject)
    document = _mended(moment.state, request)
    label = "document.restored" if request.to == "last-good" else "document.retired"
    drafts = [
        Draft(
            subject=request.subject,
            type=label,
            document=document,
            id=actor.command,
            corr=actor.command,
            optional=family_of(request.subject) is None,
        ),
        record("mend", request.reason, actor, "accepted", label, request.subject),
    ]
    return Planned(drafts, lambda sequence: Accepted(as_of_seq=sequence, command=actor.command))


def _refusal(state: FleetState, request: Mend) -> No | None:
    subject = request.subject
    if not state.is_set_aside(subject):
        return No("not_bad", f"{subject} can be read", why="there is nothing to mend", next=VERB)
    remedy = Remedies(state).of(subject)
    if request.to in remedy.ways:
        return None
    if subject == subjects.GENESIS:
        return No("not_mended", "a genesis is mended by a recovery alone", next=remedy.command)
    writer, next_ = writer_of(subject), _instead(remedy, request)
    if writer not in ("control", "nobody") or subject == subjects.CONTROL_EPOCH:
        why = remedy.waits or "no value is written in another's place"
        return No("not_ours", f"{subject} is written by {writer}", why=why, next=next_)
    if request.to == "gone":
        why = remedy.waits or "without it the fleet would be told to stop what runs"
        return No("not_retired", f"{subject} is not retired", why=why, next=next_)
    return No(
        "no_last_good",
        f"no earlier value of {subject} is kept",
        why="its first message was the bad one, or LOG's age has taken the good one",
        next=next_,
    )


def _instead(remedy: Remedy, request: Mend) -> str:
    """The other way to mend it."""
    return remedy.command and remedy.command + with_reason(request.reason)


def _mended(state: FleetState, request: Mend) -> Document:
    held = state.held(request.subject)
    if request.to == "last-good" and held is not None:
        document: Document = held.document
        return document
    known = getattr(None if held is None else held.document, "id", "")
    return Gone(id=known or _name(state, request.subject))


def _name(state: FleetState, subject: str) -> str:
    """Of a replica, the newest that any node was told or told of, so that its id is not used again."""
    found = family_of(subject)
    match found and (found[0].table, found[1]):
        case ("replicas", (model, slot)):
            parsed = filter(None, map(parse_replica, _named(state)))
            used = [parts.generation for parts in parsed if subjects.replica_slot(parts) == subject]
            return f"{model}-{slot}-{max(used, default=0)}"
        case ("shards", (_, slot)):
            return f"slot-{slot}"
        case ("infos" | "routers", (name, *_)):
            return name
        case _:
            return subject.removeprefix(subjects.STATE_ROOT)


def _named(state: FleetState) -> Iterator[str]:
    told = (held.document.shards for held in state.assignments.values())
    yield from (shard.replica for shard in chain.from_iterable(told))
    yield from state.shards_by_replica
