"""Documents whose last message cannot be read, and how they are put right. Pure.

Control mends what control writes: by writing the last good value anew, or by retiring the entity. What
an agent or a router writes, it writes again itself. The genesis is mended by a recovery alone.
"""

import shlex
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
from services.fleet.state import FleetState, Unknown, Unreadable

VERB = "flotilla journal mend"
_LASTING = {"genesis", "catalog", "epoch", "assignments", "brake"}
"""Tables of which nothing is ever retired: without them a fleet would be told to stop."""


def bad_documents(state: FleetState) -> BadDocuments:
    """All of them, by subject."""
    found: dict[str, Unreadable | Unknown] = {**state.unreadable, **state.unknown}
    items = tuple(_row(state, subject, each) for subject, each in sorted(found.items()))
    return BadDocuments(as_of_seq=state.sequence, items=items)


def _row(state: FleetState, subject: str, found: Unreadable | Unknown) -> BadDocument:
    held = state.held(subject)
    optional = isinstance(found, Unknown) and found.optional
    return BadDocument(
        subject=subject,
        sequence=found.sequence,
        reason=_why(found),
        writer=writer_of(subject),
        last_good=0 if held is None else held.sequence,
        optional=optional,
        command="" if optional else _command(state, subject),
    )


def _why(found: Unreadable | Unknown) -> str:
    if isinstance(found, Unreadable):
        return found.reason
    return f"{found.type} v{found.version} is not known to this version"


def _command(state: FleetState, subject: str) -> str:
    if subject == subjects.GENESIS:
        return "flotilla journal recover"
    if writer_of(subject) not in ("control", "nobody"):
        return ""
    return f"{VERB} {shlex.quote(subject)}" + ("" if state.held(subject) is not None else " --gone")


def writer_of(subject: str) -> str:
    """Who writes there."""
    found = family_of(subject)
    if found is None:
        return "nobody"
    family, key = found
    if family.table in ("infos", "shards"):
        return f"agent {key[0]}"
    return f"router {key[0]}" if family.table == "routers" else "control"


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
    if subject not in state.unreadable and subject not in state.unknown:
        return No("not_bad", f"{subject} can be read", why="there is nothing to mend", next=VERB)
    if subject == subjects.GENESIS:
        return No(
            "not_mended",
            "a genesis is mended by a recovery alone",
            next="flotilla journal recover",
        )
    writer = writer_of(subject)
    if writer not in ("control", "nobody"):
        return No(
            "not_ours",
            f"{subject} is written by {writer}",
            why="it writes it anew at its next change or start",
        )
    family = family_of(subject)
    if request.to == "gone" and family is not None and family[0].table in _LASTING:
        return No(
            "not_retired",
            f"{subject} is never retired",
            why="without it the fleet would be told to stop what runs",
            next=_instead(state, request),
        )
    if request.to == "last-good" and state.held(subject) is None:
        return No(
            "no_last_good",
            f"no earlier value of {subject} is kept",
            why="its first message was the bad one, or LOG's age has taken the good one",
            next=_instead(state, request),
        )
    return None


def _instead(state: FleetState, request: Mend) -> str:
    """The other way to mend it."""
    end = with_reason(request.reason)
    if request.subject == subjects.CATALOG and state.held(request.subject) is None:
        return f"flotilla catalog apply FILE{end}"
    gone = " --gone" if state.held(request.subject) is None else ""
    return f"{VERB} {shlex.quote(request.subject)}{gone}{end}"


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
    if found is None or found[0].table != "replicas":
        return subject.removeprefix(subjects.STATE_ROOT)
    prefix = "-".join(found[1]) + "-"
    parsed = filter(None, map(parse_replica, _named(state)))
    used = [parts.generation for parts in parsed if subjects.replica_slot(parts) == subject]
    return f"{prefix}{max(used, default=0)}"


def _named(state: FleetState) -> Iterator[str]:
    told = (held.document.shards for held in state.assignments.values())
    yield from (shard.replica for shard in chain.from_iterable(told))
    yield from state.shards_by_replica
