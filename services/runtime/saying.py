"""Everything that our programs say to people. What is said stays one line, and works nothing on a terminal,
whatever a name, a reason or a server's answer holds.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TextIO

from services.fleet.unseen import escaped
from services.runtime.failure import Exit, Failure


class Unread(Exception):
    """Standard output takes no more: nobody reads it, or no space is left."""


def out(*lines: str) -> None:
    """Results, each line escaped. Raises Unread."""
    out_as_it_is(*map(escaped, lines))


def out_as_it_is(*lines: str) -> None:
    """What is escaped in the way of its own form already. Raises Unread."""
    if sys.stdout is None:  # It was closed before we began: `flotilla version >&-`.
        return
    try:
        _write(sys.stdout, lines)
    except OSError as error:
        raise Unread from error


def err(*lines: str, paint: Callable[[str], str] = str) -> None:
    """Whatever is not the result. A terminal that is gone must not stop what is being told of.

    `paint` is given each line escaped, and may add what steers a terminal.
    """
    if sys.stderr is not None:
        try:
            _write(sys.stderr, (paint(escaped(line)) for line in lines))
        except BrokenPipeError:
            _to_nowhere(sys.stderr)
        except OSError:
            return  # A disk that is full now takes the next line, perhaps.


def told(failure: Failure) -> int:
    """Say it; returns its exit code."""
    err(*failure.lines())
    return failure.exit_code


def unread(error: BaseException | None) -> int:
    """The exit code where standard output takes no more, and says why unless it is the reader's will."""
    _to_nowhere(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return Exit.UNREAD
    return told(Failure(Exit.USAGE, "not_written", f"cannot write the result: {error}"))


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    """Flushed; what the stream's encoding lacks is escaped too."""
    encoding = stream.encoding or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _to_nowhere(stream: TextIO) -> None:
    """What is left in its buffer is written at the end of the process, and must not fail there again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
