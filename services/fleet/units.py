"""Durations and sizes as people write them: `120s`, `15m`, `off`, `70GiB`. One reader for catalog and settings.

Unset, zero and off are three different things: unset is the caller's matter, `0` is the number,
`off` is `OFF`.
"""

import re
from typing import Final, Literal

from msgspec import Struct

OFF: Final = "off"
Off = Literal["off"]


class Wrong(Struct, frozen=True):
    """Why a text is not the value it should be, and how to mend it."""

    message: str
    hint: str = ""


_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES = {
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_PART = r"([0-9]{1,19}(?:\.[0-9]{1,9})?)"
_DURATION_PART = re.compile(_PART + r"(ms|[dhms])")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_SIZE = re.compile(_PART + r" ?([A-Za-z]*)")
_NUMBER = re.compile(_PART)
_LONGEST_SECONDS = 100 * 366 * 86400.0
_LARGEST_BYTES = 2**60


def duration(text: str) -> float | Off | Wrong:
    """Seconds of `90s`, `15m`, `1h30m`, `0`; or OFF."""
    if text == OFF:
        return OFF
    if text == "0":
        return 0.0
    if _NUMBER.fullmatch(text):
        return Wrong(f"`{text}` has no unit", f"write `{text}s` for seconds, `{text}m` for minutes")
    if not _DURATION.fullmatch(text):
        return Wrong(f"`{text}` is not a duration", "write for example `90s`, `15m`, `2h` or `off`")
    parts = _DURATION_PART.findall(text)
    seconds = round(sum(float(number) * _SECONDS[unit] for number, unit in parts), 3)
    if seconds > _LONGEST_SECONDS:
        return Wrong(f"`{text}` is longer than 100 years", "write `off` for no limit")
    return seconds


def write_duration(seconds: float | None) -> str:
    """The shortest text that `duration` reads as this; None is `off`."""
    if seconds is None:
        return OFF
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0"
    for unit, size in _SECONDS.items():
        whole, rest = divmod(milliseconds, round(size * 1000))
        if not rest:
            return f"{whole}{unit}"
    raise AssertionError("a millisecond divides every duration")


def size(text: str) -> int | Wrong:
    """Bytes of `70GiB`, `512MiB`, `4GB`, `0`."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return Wrong(f"`{text}` is not a size", "write for example `70GiB`, `512MiB` or `4GB`")
    number, unit = found.groups()
    if text == "0":
        return 0
    if unit not in _BYTES:
        return Wrong(
            f"`{text}` has no unit known here" if unit else f"`{text}` has no unit",
            _unit_hint(number, unit),
        )
    total = int(float(number) * _BYTES[unit]) if "." in number else int(number) * _BYTES[unit]
    if total > _LARGEST_BYTES:
        return Wrong(f"`{text}` is more than any machine has", "1024 PiB at most")
    return total


def _unit_hint(number: str, unit: str) -> str:
    letter = unit[:1].upper()
    if letter in "KMGT" and letter:
        return f"write `{number}{letter}iB`, or `{number}{'k' if letter == 'K' else letter}B` for powers of ten"
    return f"write for example `{number}GiB`; units are {', '.join(_BYTES)}"


def write_size(number_bytes: int) -> str:
    """The shortest text that `size` reads as this."""
    if number_bytes == 0:
        return "0"
    fitting = (
        (number_bytes // one, unit) for unit, one in _BYTES.items() if not number_bytes % one
    )
    return min((f"{count}{unit}" for count, unit in fitting), key=lambda text: (len(text), text))
