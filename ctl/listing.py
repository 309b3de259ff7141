"""What the nouns share: print a list in any form, find one of it by name."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from ctl.failure import Exit, Failure
from ctl.operator import Operator
from ctl.render import Column, data, result, room, table, talk
from services.fleet.nearest import near

R = TypeVar("R", bound=Struct)


def print_list(
    operator: Operator,
    body: bytes,
    rows: Sequence[R],
    columns: Sequence[Column[R]],
    name: Callable[[R], str],
) -> None:
    """`rows` are the decoded items of the frame `body`."""
    if operator.prints_frame(body):
        return
    if operator.output == "name":
        result(*map(name, rows))
    elif rows:
        result(*table(rows, columns, wide=operator.wide, room=room()))
    else:
        talk("none")


def print_one(operator: Operator, row: Struct, lines: Iterable[str]) -> None:
    """One item of a list, as text or as data."""
    if operator.output in {"json", "jsonl", "yaml"}:
        data(msgspec.json.encode(row), operator.output)
    else:
        result(*lines)


def find(rows: Sequence[R], wanted: str, kind: str, name: Callable[[R], str]) -> R:
    """The row of that name, or a failure that knows the nearest ones."""
    for row in rows:
        if name(row) == wanted:
            return row
    known = near(wanted, map(name, rows))
    raise Failure(
        Exit.NOT_FOUND,
        "not_found",
        f"no {kind} `{wanted}`",
        why=f"did you mean {' or '.join(known)}?" if known else "",
        steps=[f"flotilla {kind}s"],
    )
