"""Everything that a verb prints. Results go to stdout, talk goes to stderr.

A number that is not known is `-` in tables and negative in JSON; it is never 0. On a terminal a table fits
its width, at the cost of prose and never of a name; in a pipe, and with `-o wide`, nothing is shortened.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import click
import msgspec

from ctl.failure import Failure
from ctl.fitting import cut, padded, width
from services.fleet.unseen import escaped, escaped_json
from services.runtime import saying

Format = Literal["table", "wide", "json", "yaml", "jsonl", "name"]
FORMATS: tuple[Format, ...] = ("table", "wide", "json", "yaml", "jsonl", "name")
UNKNOWN = "-"
LEAST_PROSE = 12
"""Columns of a terminal that prose keeps, however narrow that is."""

R = TypeVar("R")


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column of a table of `R`. `wide` ones are shown only when asked for."""

    title: str
    cell: Callable[[R], str]
    wide: bool = False
    right: bool = False
    prose: bool = False
    """For people to read: it may be shortened."""


def table(
    rows: Sequence[R],
    columns: Sequence[Column[R]],
    *,
    wide: bool = False,
    room: int | None = None,
) -> list[str]:
    """Aligned lines with a heading, no trailing blanks; fit into `room` as far as prose gives way."""
    shown = [column for column in columns if wide or not column.wide]
    cells = [[escaped(column.cell(row)) for column in shown] for row in rows]
    grid = [[column.title for column in shown], *cells]
    widths = [max(width(line[at]) for line in grid) for at in range(len(shown))]
    if room is not None and not wide:
        widths = _fitted(widths, shown, room)
    return [_line(line, shown, widths) for line in grid]


def _fitted(widths: Sequence[int], columns: Sequence[Column[R]], room: int) -> list[int]:
    """From the right, prose gives what is too much."""
    fitted = list(widths)
    for at in reversed(range(len(columns))):
        over = sum(fitted) + 2 * (len(fitted) - 1) - room
        if columns[at].prose and over > 0:
            fitted[at] = max(min(fitted[at], LEAST_PROSE), fitted[at] - over)
    return fitted


def _line(line: Sequence[str], columns: Sequence[Column[R]], widths: Sequence[int]) -> str:
    return "  ".join(
        padded(cut(text, columns_), columns_, right=column.right)
        for text, column, columns_ in zip(line, columns, widths, strict=True)
    ).rstrip()


def room() -> int | None:
    """Columns of the terminal that results go to; None: they go elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def facts(pairs: Mapping[str, str]) -> list[str]:
    """`name: value` lines with the values aligned; empty values are left out."""
    told = {name: text for name, text in pairs.items() if text}
    longest = max((len(name) for name in told), default=0) + 1
    return [f"{name + ':':<{longest}} {text}" for name, text in told.items()]


def encoded(body: bytes, form: Format) -> str:
    """A frame as JSON, YAML, or one line an item. What nobody sees is escaped, and the values are the same."""
    if form == "json":
        return escaped_json(msgspec.json.format(body, indent=2).decode())
    if form == "yaml":
        return _yaml(msgspec.json.decode(body))
    items = msgspec.json.decode(body, type=_Items).items
    lines = [body] if items is None else items
    return "\n".join(
        escaped_json(msgspec.json.format(bytes(line), indent=-1).decode()) for line in lines
    )


def _yaml(value: object) -> str:
    text = msgspec.yaml.encode(value).decode().rstrip("\n")
    if all(escaped(line) == line for line in text.split("\n")):
        return text
    import yaml  # Takes as long as many a whole verb.

    told: str = yaml.safe_dump(value, sort_keys=False)  # pyright: ignore[reportUnknownMemberType] - an untyped width.
    return told.rstrip("\n")


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def duration(seconds: float) -> str:
    """`48s`, `12m`, `3h`, `2d`; negative is unknown."""
    if seconds < 0:
        return UNKNOWN
    for unit, size, limit in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def size(count: int) -> str:
    """Bytes in the largest binary unit that keeps the number at or over 1."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.4g}{unit}"
    return f"{count}B"


def joined(parts: Iterable[str]) -> str:
    """Comma-separated, or the sign for nothing known."""
    return ",".join(parts) or UNKNOWN


def counts(by: Mapping[str, int]) -> str:
    """`3: 2 ready, 1 pending`."""
    parts = ", ".join(f"{count} {word}" for word, count in sorted(by.items()) if count)
    total = sum(by.values())
    return f"{total}: {parts}" if parts else str(total)


def result(*lines: str) -> None:
    """What was asked for. Raises Unread."""
    saying.out(*lines)


def as_it_is(text: str) -> None:
    """What was asked for, where the form itself lets nothing unseen in. Raises Unread."""
    saying.out_as_it_is(text)


def data(body: bytes, form: Format) -> None:
    """What was asked for, as `encoded`. Raises Unread."""
    as_it_is(encoded(body, form))


def talk(*lines: str) -> None:
    """Whatever is not the result: progress, warnings, errors."""
    saying.err(*lines)


def complain(failure: Failure) -> int:
    """Say why not; returns the exit code."""
    saying.err(*failure.lines(), paint=_painted)
    return failure.exit_code


def stderr_is_live() -> bool:
    """Whether a line on stderr can be drawn over."""
    return sys.stderr is not None and sys.stderr.isatty()


def _painted(line: str) -> str:
    if not line.startswith("error:") or os.environ.get("NO_COLOR") or not stderr_is_live():
        return line
    return click.style(line, fg="red", bold=True)
