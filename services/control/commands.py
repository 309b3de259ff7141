"""What operators ask for, planned against one state and one catalog. Pure.

A plan becomes events in the loop's single appender, so nothing comes between the look and the write:
an apply against a catalog that changed meanwhile is refused, not merged. Refused commands are recorded
too. One that changes nothing writes nothing.
"""

import shlex
from typing import Literal

from msgspec import Struct

from schemas import subjects
from schemas.api import ApplyCatalog
from schemas.documents import CatalogPointer, CatalogRevision, CommandRecord
from schemas.frames import Accepted, Fault, Frame, Refusal
from schemas.ids import EventId, ModelName
from services.control.current import next_revision
from services.control.drafts import Draft
from services.control.moment import Moment, Planned
from services.fleet.catalog import Catalog, CatalogFaults, from_yaml


class Actor(Struct, frozen=True):
    """Who asks, from where, and the id that the command will have in the log."""

    name: str
    source: str
    """Address that the request came from."""
    command: EventId


class No(Struct, frozen=True):
    """Why a command is refused."""

    code: str
    message: str
    why: str = ""
    next: str = ""
    faults: tuple[Fault, ...] = ()


def plan_apply(moment: Moment, request: ApplyCatalog, actor: Actor) -> Planned:
    """Make a catalog the current one: its revision, the pointer and the record in one batch."""
    made = from_yaml(request.source, request.file)
    refused = _refusal(moment, request, made)
    if refused is not None or isinstance(made, CatalogFaults):
        return _refuse("apply", request.reason, actor, refused)
    current = moment.current
    if not current.refused and current.revision and made.hash == current.catalog.hash:
        return Planned((), lambda sequence: _accepted(sequence, actor, current.revision, False))
    return _swap(moment, made, request.reason, actor)


def _refusal(moment: Moment, request: ApplyCatalog, made: Catalog | CatalogFaults) -> No | None:
    if (halted := moment.state.halted()) != ():
        return No("halted", "this control decides nothing", why=halted[0])
    current = moment.current.revision
    if request.if_revision is not None and request.if_revision != current:
        return No(
            "revision_changed",
            f"the catalog is at revision {current}, not {request.if_revision}",
            why="somebody applied another one meanwhile",
            next="flotilla catalog show",
        )
    if isinstance(made, CatalogFaults):
        return No(
            "bad_catalog",
            f"the catalog has {len(made.faults)} fault{'s' * (len(made.faults) != 1)}",
            why="nothing was changed",
            faults=made.faults,
        )
    vanishing = [] if request.prune_all else sorted(_vanishing(moment, made) - {*request.prune})
    if vanishing:
        prune = " ".join(f"--prune {shlex.quote(name)}" for name in vanishing)
        file = shlex.quote(request.file or "FILE")
        return No(
            "would_remove",
            f"the catalog no longer has {', '.join(vanishing)}",
            why="their replicas would be drained and stopped, and clients would get 404",
            next=f"flotilla catalog apply {file} {prune}",
        )
    return None


def _vanishing(moment: Moment, made: Catalog) -> set[ModelName]:
    """Models that clients may ask for, or that have replicas to run, and that `made` has not."""
    running = {
        held.document.model
        for held in moment.state.replicas.values()
        if held.document.goal == "run"
    }
    listed = set(moment.current.catalog.models)
    return (listed | running if moment.current.refused else listed) - set(made.models)


def _swap(moment: Moment, made: Catalog, reason: str, actor: Actor) -> Planned:
    revision = next_revision(moment.state)
    drafts = [
        Draft(
            subject=subjects.catalog_revision(revision),
            type="catalog.stored",
            document=CatalogRevision(revision=revision, hash=made.hash, source=made.source()),
            id=EventId(f"{actor.command}-revision"),
            corr=actor.command,
        ),
        Draft(
            subject=subjects.CATALOG,
            type="catalog.swapped",
            document=CatalogPointer(
                revision=revision, hash=made.hash, author=actor.name, reason=reason
            ),
            id=actor.command,
            corr=actor.command,
        ),
        _record("apply", reason, actor, "accepted", f"revision {revision}"),
    ]
    return Planned(drafts, lambda sequence: _accepted(sequence, actor, revision, True))


def _accepted(sequence: int, actor: Actor, revision: int, changed: bool) -> Frame:
    return Accepted(as_of_seq=sequence, command=actor.command, revision=revision, changed=changed)


def _refuse(verb: str, reason: str, actor: Actor, refused: No | None) -> Planned:
    no = refused or No("refused", "the command was refused")

    def answer(sequence: int) -> Frame:
        return Refusal(
            as_of_seq=sequence,
            code=no.code,
            message=no.message,
            why=no.why,
            next=no.next,
            faults=no.faults,
        )

    detail = f"{no.code}: {no.message}"
    return Planned([_record(verb, reason, actor, "refused", detail)], answer)


def _record(
    verb: str,
    reason: str,
    actor: Actor,
    outcome: Literal["accepted", "refused"],
    detail: str,
) -> Draft:
    document = CommandRecord(
        verb=verb,
        actor=actor.name,
        source=actor.source,
        reason=reason,
        target="catalog",
        outcome=outcome,
        detail=detail,
    )
    return Draft(
        subject=subjects.command(verb),
        type=f"command.{outcome}",
        document=document,
        id=EventId(f"{actor.command}-record"),
        corr=actor.command,
    )
