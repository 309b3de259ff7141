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
from schemas.history import RollbackCatalog
from schemas.ids import EventId, ModelName
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.current import find_revision, next_revision
from services.control.deciding.drafts import Draft
from services.fleet.catalog import Catalog, CatalogFaults, from_json, from_yaml
from services.fleet.state import FleetState


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


class Wanted(Struct, frozen=True, kw_only=True):
    """How a catalog is to become the current one, whatever it was made from."""

    verb: Literal["apply", "rollback"]
    prune: tuple[ModelName, ...]
    prune_all: bool
    if_revision: int | None
    reason: str
    typed: str
    """The command line that asks for it, without its options."""


def plan_apply(moment: Moment, request: ApplyCatalog, actor: Actor) -> Planned:
    """Make a catalog the current one: its revision, the pointer and the record in one batch."""
    wanted = Wanted(
        verb="apply",
        prune=request.prune,
        prune_all=request.prune_all,
        if_revision=request.if_revision,
        reason=request.reason,
        typed=f"flotilla catalog apply {shlex.quote(request.file or 'FILE')}",
    )
    return _plan(moment, from_yaml(request.source, request.file), wanted, actor)


def plan_rollback(moment: Moment, request: RollbackCatalog, actor: Actor) -> Planned:
    """Make the content of a kept revision current again: a new revision, refused like any other."""
    wanted = Wanted(
        verb="rollback",
        prune=request.prune,
        prune_all=request.prune_all,
        if_revision=request.if_revision,
        reason=request.reason or f"as r{request.revision}",
        typed=f"flotilla catalog rollback r{request.revision}",
    )
    held = find_revision(moment.state, request.revision)
    if held is None:
        return refuse("rollback", wanted.reason, actor, not_kept(moment.state, request.revision))
    return _plan(moment, from_json(held.document.source), wanted, actor)


def not_kept(state: FleetState, revision: int) -> No:
    """Of a revision that there is no more, or never was."""
    kept = sorted(held.document.revision for held in state.revisions.values())
    return No(
        "no_such_revision",
        f"catalog r{revision} is not kept",
        why=f"kept are r{kept[0]} to r{kept[-1]}" if kept else "there is no catalog yet",
        next="flotilla catalog history",
    )


def _plan(moment: Moment, made: Catalog | CatalogFaults, wanted: Wanted, actor: Actor) -> Planned:
    refused = _refusal(moment, wanted, made)
    if refused is not None or isinstance(made, CatalogFaults):
        return refuse(wanted.verb, wanted.reason, actor, refused)
    current = moment.current
    if not current.refused and current.revision and made.hash == current.catalog.hash:
        return Planned((), lambda sequence: _accepted(sequence, actor, current.revision, False))
    return _swap(moment, made, wanted, actor)


def _refusal(moment: Moment, wanted: Wanted, made: Catalog | CatalogFaults) -> No | None:
    if (halted := moment.state.halted()) != ():
        return No("halted", "this control decides nothing", why=halted[0])
    current = moment.current.revision
    if wanted.if_revision is not None and wanted.if_revision != current:
        return No(
            "revision_changed",
            f"the catalog is at revision {current}, not {wanted.if_revision}",
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
    vanishing = [] if wanted.prune_all else sorted(_vanishing(moment, made) - {*wanted.prune})
    if vanishing:
        prune = " ".join(f"--prune {shlex.quote(name)}" for name in vanishing)
        return No(
            "would_remove",
            f"the catalog no longer has {', '.join(vanishing)}",
            why="their replicas would be drained and stopped, and clients would get 404",
            next=f"{wanted.typed} {prune}",
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


def _swap(moment: Moment, made: Catalog, wanted: Wanted, actor: Actor) -> Planned:
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
                revision=revision, hash=made.hash, author=actor.name, reason=wanted.reason
            ),
            id=actor.command,
            corr=actor.command,
        ),
        record(wanted.verb, wanted.reason, actor, "accepted", f"revision {revision}"),
    ]
    return Planned(drafts, lambda sequence: _accepted(sequence, actor, revision, True))


def _accepted(sequence: int, actor: Actor, revision: int, changed: bool) -> Frame:
    return Accepted(as_of_seq=sequence, command=actor.command, revision=revision, changed=changed)


def refuse(
    verb: str, reason: str, actor: Actor, refused: No | None, target: str = "catalog"
) -> Planned:
    """Nothing but the record that it was refused."""
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
    return Planned([record(verb, reason, actor, "refused", detail, target)], answer)


def record(
    verb: str,
    reason: str,
    actor: Actor,
    outcome: Literal["accepted", "refused"],
    detail: str,
    target: str = "catalog",
) -> Draft:
    """That the command was given, and what came of it."""
    document = CommandRecord(
        verb=verb,
        actor=actor.name,
        source=actor.source,
        reason=reason,
        target=target,
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
