"""`flotilla status`: the fleet on one page, and what to do about it."""

from collections.abc import Iterator, Mapping

import click

from ctl.at import ask, at_option
from ctl.failure import Exit
from ctl.following import followers, leader
from ctl.operator import Operator, Verb
from ctl.render import counts, result
from ctl.typed import typed
from schemas.api import Status


@click.command(cls=Verb)
@at_option
@click.pass_obj
def status(operator: Operator, at: str | None) -> int:
    """The fleet on one page. Exit code 1 when something needs attention."""
    answer = ask(operator, "status", Status, at)
    if not operator.prints_frame(answer.body):
        result(*_lines(answer.frame))
    return Exit.NO if _troubled(answer.frame) else Exit.YES


def _troubled(fleet: Status) -> bool:
    return bool(fleet.damage or fleet.halted or fleet.attention or not fleet.leader)


def _lines(fleet: Status) -> Iterator[str]:
    yield f"{_word(fleet)}  (seq {fleet.as_of_seq:,}, {_catalog(fleet)}, {leader(fleet)})"
    yield f"  nodes     {_counts(fleet, fleet.nodes)}"
    yield f"  models    {_counts(fleet, fleet.models)}"
    yield f"  replicas  {_counts(fleet, fleet.replicas)}"
    yield from followers(fleet)
    if fleet.damage:
        yield f"  damaged   {fleet.damage.reason}, since {fleet.damage.since}"
    yield from (f"  halted    {reason}" for reason in fleet.halted)
    yield from (f"  warning   {warning}" for warning in fleet.warnings)
    yield from (f"  ! {line}" for line in fleet.attention)
    yield f"  next: {typed(_next(fleet))}"


def _word(fleet: Status) -> str:
    if fleet.damage:
        return "DAMAGED"
    if fleet.halted:
        return "HALTED"
    if _troubled(fleet):
        return "DEGRADED"
    return "STARTING" if fleet.models.get("starting") else "OK"


def _is_known(fleet: Status) -> bool:
    """False: control found a damaged log at its start, and has read nothing of the fleet."""
    return bool(fleet.log or not fleet.damage)


def _counts(fleet: Status, of: Mapping[str, int]) -> str:
    return counts(of) if _is_known(fleet) else "not known"


def _catalog(fleet: Status) -> str:
    if not _is_known(fleet):
        return "catalog not known"
    return f"catalog r{fleet.catalog_revision}" if fleet.catalog_revision else "no catalog yet"


def _next(fleet: Status) -> str:
    if fleet.damage or fleet.recovering:
        return "flotilla journal recover"
    if not fleet.catalog_revision:
        return "flotilla catalog apply FILE"
    if fleet.brake:
        return "flotilla brake"
    if fleet.models.get("pending"):
        return "flotilla explain-placement MODEL"
    return "flotilla replicas" if _troubled(fleet) else "flotilla models"
