"""What operators ask for, planned against one state and one catalog. Pure.

A plan becomes events in the loop's single appender, so nothing comes between the look and the write:
an apply against a catalog that changed meanwhile is refused, not merged. Refused commands are recorded
too. One that changes nothing writes nothing.
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from schemas import subjects
from schemas.api import ApplyCatalog
from schemas.documents import CatalogPointer, CatalogRevision, CommandRecord
from schemas.frames import Accepted, Fault, Frame, Refusal
from schemas.history import RollbackCatalog
from schemas.ids import EventId, ModelName
from services.control.commanding.moment import Moment, Plan, Planned
from services.control.deciding.current import find_revision, next_revision
from services.control.deciding.drafts import Draft
from services.fleet.catalog import Catalog, CatalogFaults, from_json, from_yaml
from services.fleet.nearest import nearest
from services.fleet.state import FleetState

STDIN = "<stdin>"
"""What the command line calls a file that came by standard input."""

LONGEST_DETAIL = 2000
"""Of what is recorded of a command: it may name every model of a catalog."""


class Actor(Struct, frozen=True):
    """Who asks, from where, and the id that the command will have in the log."""

    name: str
    source: str
    """Address that the request came from."""
    command: EventId
    asked: str = ""
    """The mark that the asker gave it; empty: none."""


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
    """As it was given."""
    reason_else: str = ""
    """What is recorded where none was given."""
    typed: str
    """The command line that asks for it, without its options."""

    @property
    def recorded(self) -> str:
        """The reason in the log."""
        return self.reason or self.reason_else

    def again(self, prune: Iterable[ModelName]) -> str:
        """The whole command line, with `prune` in place of the models that were named."""
        told = [self.typed]
        if self.prune_all:
            told.append("--prune-all")
        told += [f"--prune {shlex.quote(name)}" for name in sorted(prune)]
        if self.if_revision is not None:
            told.append(f"--if-revision r{self.if_revision}")
        return " ".join(told) + with_reason(self.reason)


def with_reason(reason: str) -> str:
    """Of a command line: its end, so that what is typed again keeps its reason."""
    return f" -m {shlex.quote(reason)}" if reason else ""


def plan_apply(request: ApplyCatalog, actor: Actor) -> Plan:
    """Make a catalog the current one: its revision, the pointer and the record in one batch.

    It is read here and now, which takes seconds where it is large; the plan itself takes none.
    """
    wanted = Wanted(
        verb="apply",
        prune=request.prune,
        prune_all=request.prune_all,
        if_revision=request.if_revision,
        reason=request.reason,
        typed=f"flotilla catalog apply {typed_file(request.file)}",
    )
    made = from_yaml(request.source, request.file)
    if isinstance(made, Catalog):
        from_json(made.source())  # Remembered: it is read from the log in the turn that takes it.
    return lambda moment: _plan(moment, made, wanted, actor)


def plan_rollback(moment: Moment, request: RollbackCatalog, actor: Actor) -> Planned:
    """Make the content of a kept revision current again: a new revision, refused like any other."""
    wanted = Wanted(
        verb="rollback",
        prune=request.prune,
        prune_all=request.prune_all,
        if_revision=request.if_revision,
        reason=request.reason,
        reason_else=f"as r{request.revision}",
        typed=f"flotilla catalog rollback r{request.revision}",
    )
    held = find_revision(moment.state, request.revision)
    if held is None:
        return refuse("rollback", wanted.recorded, actor, not_kept(moment.state, request.revision))
    return _plan(moment, from_json(held.document.source), wanted, actor)


def typed_file(name: str) -> str:
    """As it is typed: what came by standard input has no name, and a dash begins an option."""
    if name == STDIN:
        return "-"
    return shlex.quote(f"./{name}" if name.startswith("-") else name or "FILE")


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
        return refuse(wanted.verb, wanted.recorded, actor, refused)
    if _changes_nothing(moment, made):
        revision = moment.current.revision
        return Planned((), lambda sequence: _accepted(sequence, actor, revision, False))
    return _swap(moment, made, wanted, actor)


def _changes_nothing(moment: Moment, made: Catalog) -> bool:
    current = moment.current
    return bool(not current.refused and current.revision and made.hash == current.catalog.hash)


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
    return None if _changes_nothing(moment, made) else _removal(moment, wanted, made)


def _removal(moment: Moment, wanted: Wanted, made: Catalog) -> No | None:
    """What vanishes must be named, and what is named must be there."""
    known = _known(moment)
    if stray := sorted(each for each in {*wanted.prune} - known if not _was(moment, each)):
        return _stray(wanted, stray, known)
    vanishing = known - set(made.models) - {*wanted.prune}
    if wanted.prune_all or not vanishing:
        return None
    return No(
        "would_remove",
        f"the catalog no longer has {', '.join(sorted(vanishing))}",
        why="their replicas would be drained and stopped, and clients would get 404",
        next=wanted.again({*wanted.prune, *vanishing}),
    )


def _was(moment: Moment, name: ModelName) -> bool:
    """A model that left the catalog: what is left of it may go on ending, or have ended just now."""
    left = {held.document.model for held in moment.state.replicas.values()}
    return name in left or moment.state.held(subjects.placement(name)) is not None


def _stray(wanted: Wanted, stray: Sequence[ModelName], known: set[ModelName]) -> No:
    meant = [found for name in stray if (found := nearest(name, known))]
    return No(
        "no_such_model",
        f"--prune names {', '.join(stray)}: there is no such model",
        why=f"did you mean {' or '.join(meant)}?" if meant else "nothing was changed",
        next=wanted.again(({*wanted.prune} - {*stray}) | {ModelName(name) for name in meant}),
    )


def _known(moment: Moment) -> set[ModelName]:
    """Models that clients may ask for; where the current catalog is refused, those that run too."""
    listed = set(moment.current.catalog.models)
    return listed | _running(moment) if moment.current.refused else listed


def _running(moment: Moment) -> set[ModelName]:
    replicas = (held.document for held in moment.state.replicas.values())
    return {replica.model for replica in replicas if replica.goal == "run"}


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
                revision=revision, hash=made.hash, author=actor.name, reason=wanted.recorded
            ),
            id=actor.command,
            corr=actor.command,
        ),
        record(wanted.verb, wanted.recorded, actor, "accepted", f"revision {revision}"),
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
        detail=detail if len(detail) <= LONGEST_DETAIL else f"{detail[:LONGEST_DETAIL]}…",
        asked=actor.asked,
    )
    return Draft(
        subject=subjects.command(verb),
        type=f"command.{outcome}",
        document=document,
        id=EventId(f"{actor.command}-record"),
        corr=actor.command,
    )
