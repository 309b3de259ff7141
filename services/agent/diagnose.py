"""Reads an engine's log: how far a load has come, and why an engine ended. Pure.

What leaves here is safe to store and to show: secrets struck out, control characters escaped, at
most 4 KiB around the decisive line.
"""

import json
import re
import signal
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from schemas.documents import LastError, Progress
from services.agent.engines.adapter import Adapter, Step

LOG_BYTES = 4096
MESSAGE_BYTES = 500
STRUCK = "[secret]"

_LINE_END = re.compile(r"\r\n|\n|\r")
_FOR_EYES_ONLY_IF_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def lines(log: str, secrets: Iterable[str]) -> list[str]:
    """The log as it may be shown. A progress bar's carriage returns end lines too."""
    return [_escaped(line) for line in _LINE_END.split(_struck(log, secrets)) if line.strip()]


def _struck(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            text = text.replace(form, STRUCK)
    return text


def _escaped(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(_escape(character) for character in line)


def _escape(character: str) -> str:
    if character == "\t" or unicodedata.category(character) not in _FOR_EYES_ONLY_IF_ESCAPED:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def progress(shown: Iterable[str], steps: Sequence[Step]) -> Progress | None:
    """The newest step that the lines tell of; None: they tell of none."""
    newest: Progress | None = None
    for line in shown:
        for step in steps:
            if (found := step.pattern.search(line)) is not None:
                percent = found.groupdict().get("percent")
                newest = Progress(step=step.name, percent=float(percent) if percent else None)
    return newest


def diagnose(
    shown: Sequence[str], exit_code: int | None, adapter: Adapter, *, served: bool
) -> LastError:
    """Why the engine ended: a known line, else the signal, else the exit code.

    A load fails for the first cause in its log; an engine that had served, for the newest.
    """
    for failure in adapter.failures:
        hits = [at for at, line in enumerate(shown) if failure.pattern.search(line)]
        if hits:
            at = hits[-1 if served else 0]
            message = _cut(shown[at], MESSAGE_BYTES)
            return LastError(
                failure=failure.name,
                message=f"{message} ({failure.hint})" if failure.hint else message,
                exit_code=exit_code,
                permanent=failure.permanent,
                log=around(shown, at),
            )
    return _by_exit_code(exit_code, shown)


def withheld(error: LastError) -> LastError:
    """Without a word of the engine: what must be struck out of its log is not known."""
    message = f"{error.failure}; the engine's log is withheld, for this run's secrets are not known"
    return replace(error, message=message, log="")


def _by_exit_code(exit_code: int | None, shown: Sequence[str]) -> LastError:
    name, permanent = "unknown", False
    match exit_code:
        case None:
            message = "it ended while nobody watched, and left no exit code"
        case -4:
            name, permanent = "illegal_instruction", True
            message = "built for another processor: illegal instruction"
        case -9:
            name = "killed"
            message = "killed by SIGKILL: by someone, or by the kernel when memory ran out"
        case code if code < 0:
            name = "killed"
            message = f"killed by {_signal_name(-code)}"
        case code:
            last = f": {_cut(shown[-1], MESSAGE_BYTES)}" if shown else ""
            message = f"ended by itself with exit code {code}{last}"
    return LastError(
        failure=name,
        message=message,
        exit_code=exit_code,
        permanent=permanent,
        log=around(shown, len(shown) - 1),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def around(shown: Sequence[str], at: int, limit: int = LOG_BYTES) -> str:
    """As many whole lines around line `at` as fit; it alone, cut, if it does not."""
    if not shown:
        return ""
    first, last = at, at
    size = _size(shown[at])
    if size > limit:
        return _cut(shown[at], limit)
    grew = True
    while grew:
        grew = False
        if last + 1 < len(shown) and size + 1 + _size(shown[last + 1]) <= limit:
            last, size, grew = last + 1, size + 1 + _size(shown[last + 1]), True
        if first > 0 and size + 1 + _size(shown[first - 1]) <= limit:
            first, size, grew = first - 1, size + 1 + _size(shown[first - 1]), True
    return "\n".join(shown[first : last + 1])


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")
