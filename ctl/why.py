"""`flotilla why`: how something is, what it waits for, and the events that led there."""

import textwrap
from collections.abc import Iterator

import click

from ctl.at import ask, at_option, heading, locally, short
from ctl.operator import Operator, Verb
from ctl.render import UNKNOWN, result
from schemas.history import CauseRow, Why
from services.fleet.unseen import escaped

WIDTH = 80


def about(kind: str, help_: str) -> click.Command:
    """`flotilla why KIND NAME`."""

    @click.command(kind, cls=Verb, help=help_)
    @click.argument("name")
    @at_option
    @click.pass_obj
    def command(operator: Operator, name: str, at: str | None) -> None:
        answer = ask(operator, "why", Why, at, path={"kind": kind, "name": name})
        if operator.output == "name":
            result("\n".join(row.id for row in answer.frame.chain))
        elif not operator.prints_frame(answer.body):
            result("\n".join(_lines(answer.frame, wide=operator.wide)))

    return command


node = about("node", "Why a node is silent, excluded, or runs what it runs.")
replica = about("replica", "Why a replica is where it is, not ready, not routed, or still there.")
model = about("model", "Why a model is not placed, not ready, or gone.")
gpu = about("gpu", "Why a card is held, and by whom, or takes no replica.")


def _lines(told: Why, *, wide: bool) -> Iterator[str]:
    first, *rest = told.answer
    yield from _wrapped(escaped(locally(first)), "", wide=wide)
    for line in rest:
        yield from _wrapped(escaped(locally(line)), "  ", wide=wide)
    if told.chain:
        yield ""
        yield f"{'SEQ':>9}  {heading(told.chain[0].at):<16}{'CAUSE':>9}  WHAT, the newest first"
    sequences = {row.id: row.seq for row in told.chain}
    for row in told.chain:
        yield from _row(row, sequences.get(row.cause) if row.cause else None, wide=wide)
    yield from (f"  ! {escaped(line)}" for line in told.missing)


def _row(row: CauseRow, cause: int | None, *, wide: bool) -> Iterator[str]:
    named = UNKNOWN if cause is None else str(cause)
    begin = f"{row.seq:>9}  {short(row.at):<16}{named:>9}  "
    first, *rest = _wrapped(escaped(locally(row.summary)), "", wide=wide, width=WIDTH - len(begin))
    yield begin + first
    yield from (" " * len(begin) + line for line in rest)
    if wide:
        yield " " * len(begin) + escaped(f"{row.type} by {row.src}, {row.id}")


def _wrapped(text: str, indent: str, *, wide: bool, width: int = WIDTH) -> list[str]:
    if wide:
        return [indent + text]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  " * bool(indent)
    ) or [""]
