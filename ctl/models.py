"""`flotilla models`: what clients can ask for, and how much of it is there."""

import click

from ctl.at import ask, at_option
from ctl.client import Answer
from ctl.listing import find, print_list, print_one
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, Column, facts, joined
from schemas.api import ModelList, ModelRow

COLUMNS = (
    Column[ModelRow]("MODEL", lambda row: row.model),
    Column[ModelRow]("ENGINE", lambda row: row.engine or UNKNOWN),
    Column[ModelRow]("READY/WANT", lambda row: f"{row.ready}/{row.wanted}", right=True),
    Column[ModelRow]("STATE", lambda row: row.condition),
    Column[ModelRow]("WHY", lambda row: row.reason, prose=True),
    Column[ModelRow]("REPLICAS", lambda row: str(row.replicas), wide=True, right=True),
    Column[ModelRow]("ALIASES", lambda row: joined(row.aliases), wide=True),
    Column[ModelRow]("HIDDEN", lambda row: "yes" if row.hidden else "no", wide=True),
)


@click.command("list", cls=Verb)
@at_option
@click.pass_obj
def list_all(operator: Operator, at: str | None) -> None:
    """All models of the catalog, and those on their way out."""
    answer = _ask(operator, at)
    print_list(operator, answer.body, answer.frame.items, COLUMNS, lambda row: row.model)


@click.command(cls=Verb)
@click.argument("model")
@at_option
@click.pass_obj
def show(operator: Operator, model: str, at: str | None) -> None:
    """One model."""
    row = find(_ask(operator, at).frame.items, model, "model", lambda row: row.model)
    print_one(operator, row, _text(row))


def _ask(operator: Operator, at: str | None) -> Answer[ModelList]:
    return ask(operator, "models", ModelList, at)


def _text(row: ModelRow) -> list[str]:
    return facts(
        {
            "model": row.model,
            "state": row.condition,
            "why": row.reason,
            "ready": f"{row.ready} of {row.wanted}",
            "replicas": str(row.replicas),
            "engine": row.engine,
            "aliases": ", ".join(row.aliases),
            "hidden": "yes" if row.hidden else "",
        }
    )
