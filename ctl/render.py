"""Everything that a verb prints. Results go to stdout, talk goes to stderr.

A number that is not known is `-` in tables and negative in JSON; it is never 0.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import click
import msgspec

from services.fleet.unseen import escaped

Format = Literal["table", "wide", "json", "yaml", "jsonl", "name"]
FORMATS: tuple[Format, ...] = ("table", "wide", "json", "yaml", "jsonl", "name")
UNKNOWN = "-"

R = TypeVar("R")


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column of a table of `R`. `wide` ones are shown only when asked for."""

    title: str
    cell: Callable[[R], str]
    wide: bool = False
    right: bool = False


def table(rows: Sequence[R], columns: Sequence[Column[R]], *, wide: bool = False) -> str:
    """Aligned text with a heading; no trailing blanks."""
    shown = [column for column in columns if wide or not column.wide]
    cells = [[escaped(column.cell(row)) for column in shown] for row in rows]
    grid = [[column.title for column in shown], *cells]
    widths = [max(len(line[at]) for line in grid) for at in range(len(shown))]
    return "\n".join(_line(line, shown, widths) for line in grid)


def _line(line: Sequence[str], columns: Sequence[Column[R]], widths: Sequence[int]) -> str:
    padded = (
        text.rjust(width) if column.right else text.ljust(width)
        for text, column, width in zip(line, columns, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


def facts(pairs: Mapping[str, str]) -> str:
    """`name: value` lines with the values aligned; empty values are left out."""
    told = {name: text for name, text in pairs.items() if text}
    width = max((len(name) for name in told), default=0) + 1
    return "\n".join(f"{name + ':':<{width}} {escaped(text)}" for name, text in told.items())


def encoded(body: bytes, form: Format) -> str:
    """A frame as JSON, YAML, or one line an item."""
    if form == "json":
        return msgspec.json.format(body, indent=2).decode()
    value: object = msgspec.json.decode(body)
    if form == "yaml":
        return msgspec.yaml.encode(value).decode().rstrip("\n")
    items = msgspec.json.decode(body, type=_Items).items
    lines = [body] if items is None else items
    return "\n".join(msgspec.json.format(bytes(line), indent=-1).decode() for line in lines)


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


def result(text: str) -> None:
    """What was asked for."""
    click.echo(text)


def talk(text: str) -> None:
    """Whatever is not the result: progress, warnings, errors.

    A terminal that was closed, or a pipe that nobody reads, must not stop what is being told of.
    """
    with suppress(OSError):
        click.echo(text, err=True)


def stderr_is_live() -> bool:
    """Whether a line on stderr can be drawn over."""
    return sys.stderr.isatty()
