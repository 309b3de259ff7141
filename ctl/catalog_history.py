"""`flotilla catalog history|diff|rollback`: the catalogs that were, and how to get one back."""

from collections.abc import Iterator

import click

from ctl.at import ask, at_option, local
from ctl.catalog import Revision
from ctl.failure import Exit
from ctl.listing import print_list
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, Column, result, talk
from ctl.texts import NAME, reason_option
from schemas.frames import Accepted
from schemas.history import (
    CatalogDiff,
    CatalogHistory,
    EntryChange,
    FieldChange,
    RevisionRow,
    RollbackCatalog,
)
from schemas.ids import ModelName

NOT_SET = "(not set)"
MOST_NAMED = 3
"""Models that one cell names."""

COLUMNS = (
    Column[RevisionRow]("REV", lambda row: f"r{row.revision}{'*' if row.current else ''}"),
    Column[RevisionRow]("WHEN", lambda row: local(row.at)),
    Column[RevisionRow]("WHO", lambda row: row.author or UNKNOWN),
    Column[RevisionRow]("CHANGES", lambda row: _changes(row), prose=True),
    Column[RevisionRow]("REASON", lambda row: row.reason, prose=True),
    Column[RevisionRow]("MODELS", lambda row: str(row.models), wide=True, right=True),
    Column[RevisionRow]("SEQ", lambda row: str(row.seq), wide=True, right=True),
    Column[RevisionRow]("HASH", lambda row: row.hash[:12], wide=True),
)


@click.command(cls=Verb)
@at_option
@click.pass_obj
def history(operator: Operator, at: str | None) -> None:
    """The revisions that are kept, the newest first: when, who, why, and what changed."""
    answer = ask(operator, "catalog-history", CatalogHistory, at)
    rows = answer.frame.items
    print_list(operator, answer.body, rows, COLUMNS, lambda row: f"r{row.revision}")


@click.command(cls=Verb)
@click.argument("old", type=Revision())
@click.argument("new", type=Revision())
@click.pass_obj
def diff(operator: Operator, old: int, new: int) -> int:
    """What differs between two kept revisions. Exit code 1 when anything does."""
    path = {"old": str(old), "new": str(new)}
    answer = operator.client().ask("catalog-diff", CatalogDiff, path=path)
    changes = answer.frame.items
    if operator.output == "name":
        result(*(change.name for change in changes))
    elif not operator.prints_frame(answer.body):
        lines = [line for change in changes for line in _entry(change)]
        if lines:
            result(*lines)
        else:
            talk(f"r{old} and r{new} are the same")
    return Exit.NO if changes else Exit.YES


@click.command(cls=Verb)
@click.argument("revision", type=Revision())
@click.option("--prune", type=NAME, multiple=True, metavar="MODEL", help="A model that may vanish.")
@click.option("--prune-all", is_flag=True, help="Any model may vanish.")
@click.option("--if-revision", type=Revision(), help="Only if this is still the current revision.")
@reason_option
@click.pass_obj
def rollback(
    operator: Operator,
    revision: int,
    prune: tuple[str, ...],
    prune_all: bool,
    if_revision: int | None,
    reason: str,
) -> None:
    """Make the content of REVISION current again, as a new revision."""
    request = RollbackCatalog(
        revision=revision,
        prune=tuple(ModelName(model) for model in prune),
        prune_all=prune_all,
        if_revision=if_revision,
        reason=reason,
    )
    answer = operator.client().ask("rollback", Accepted, request=request)
    if operator.prints_frame(answer.body):
        return
    done = answer.frame
    if done.changed:
        result(
            f"catalog r{done.revision}, the same as r{revision}, is current (command {done.command})"
        )
    else:
        result(f"unchanged: catalog r{done.revision} is the same as r{revision}")


def _changes(row: RevisionRow) -> str:
    kinds = (("+", row.added), ("-", row.removed), ("~", row.changed))
    return " ".join(_some(sign, names) for sign, names in kinds if names) or "none"


def _some(sign: str, names: tuple[ModelName, ...]) -> str:
    if len(names) > MOST_NAMED:
        return f"{sign}{len(names)}"
    return " ".join(f"{sign}{name}" for name in names)


def _entry(change: EntryChange) -> Iterator[str]:
    sign = {"added": "+", "removed": "-", "changed": "~"}[change.change]
    kind = "" if change.section == "models" else "engine "
    yield f"{sign} {kind}{change.name}"
    yield from (f"    {_field(field)}" for field in change.fields)


def _field(field: FieldChange) -> str:
    return f"{field.path}: {field.old or NOT_SET} → {field.new or NOT_SET}"
