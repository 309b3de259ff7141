"""`flotilla why`: how something is, what it waits for, and the events that led there."""

from collections.abc import Iterable, Iterator

import click

from ctl.at import ask, at_option, heading, locally, short
from ctl.fitting import wrapped
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, result, room
from schemas.history import CauseRow, Why
from services.fleet.unseen import escaped

WIDTH = 80
"""Columns where no terminal says how many."""


def about(kind: str, help_: str) -> click.Command:
    """`flotilla why KIND NAME`."""

    @click.command(kind, cls=Verb, help=help_)
    @click.argument("name")
    @at_option
    @click.pass_obj
    def command(operator: Operator, name: str, at: str | None) -> None:
        answer = ask(operator, "why", Why, at, path={"kind": kind, "name": name})
        if operator.output == "name":
            result(*(row.id for row in answer.frame.chain))
        elif not operator.prints_frame(answer.body):
            result(*_lines(answer.frame, None if operator.wide else room() or WIDTH))

    return command


node = about("node", "Why a node is silent, excluded, or runs what it runs.")
replica = about("replica", "Why a replica is where it is, not ready, not routed, or still there.")
model = about("model", "Why a model is not placed, not ready, or gone.")
gpu = about("gpu", "Why a card is held, and by whom, or takes no replica.")


def _lines(told: Why, columns: int | None) -> Iterator[str]:
    """No wider than so many columns; None: one line a row, and what `-o wide` adds."""
    first, *rest = told.answer
    yield from _wrapped(locally(first), "", "", columns)
    for line in rest:
        yield from _wrapped(locally(line), "  ", "    ", columns)
    if told.chain:
        yield ""
        yield f"{'SEQ':>9}  {heading(told.chain[0].at):<16}{'CAUSE':>9}  WHAT, the newest first"
    sequences = {row.id: row.seq for row in told.chain}
    for row in told.chain:
        yield from _row(row, sequences.get(row.cause) if row.cause else None, columns)
    yield from (f"  ! {line}" for line in told.missing)


def _row(row: CauseRow, cause: int | None, columns: int | None) -> Iterator[str]:
    named = UNKNOWN if cause is None else str(cause)
    begin = f"{row.seq:>9}  {short(row.at):<16}{named:>9}  "
    blank = " " * len(begin)
    yield from _wrapped(locally(row.summary), begin, blank, columns)
    if columns is None:
        yield f"{blank}{row.type} by {row.src}, {row.id}"


def _wrapped(text: str, first: str, rest: str, columns: int | None) -> Iterable[str]:
    if columns is None:
        return [first + text]
    return wrapped(escaped(text), columns, first=first, rest=rest)
