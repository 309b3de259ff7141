"""Moments as people write them: `48203`, `2026-11-29T03:12:00Z`, `yesterday 03:12`, `-2h`. Pure.

A local time is read in the zone of whoever asks, and told back with that zone. One that the clocks
skip is refused; of one that they show twice, the first is taken.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from msgspec import Struct

from services.fleet.units import OFF, Wrong, duration

_SEQUENCE = re.compile(r"[0-9][0-9_,]*")
_CLOCK = re.compile(
    r"(?:(today|yesterday|[0-9]{4}-[0-9]{2}-[0-9]{2})[ Tt]?)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?"
)
_LAST_SEQUENCE = 2**63 - 1
_LAST_SECONDS = 253370764800.0
"""9999-01-01: a year short of where calendars end, so that every zone can tell it."""
_HINT = "write a sequence, `03:12`, `yesterday 03:12`, `2026-11-29 03:12`, `-2h` or 2026-11-29T03:12:00Z"

_AGO_HINT = "write how long ago, for example `-90s`, `-15m`, `-2h` or `-3d`"


class AtSequence(Struct, frozen=True):
    """A place in the log."""

    sequence: int


class AtTime(Struct, frozen=True):
    """A time, and how it reads where the asker is."""

    seconds: float
    local: str
    """`2026-11-29 03:12:00 CET`."""


Moment = AtSequence | AtTime


def moment(text: str, now: float, zone: tzinfo) -> Moment | Wrong:
    """`now` in seconds since 1970; `zone` of the asker."""
    try:
        found = _moment(" ".join(text.split()), now, zone)
    except (ValueError, OverflowError):  # Beyond what calendars reach, in some zone.
        found = None
    if found is None or (isinstance(found, AtTime) and not is_told(found.seconds)):
        return Wrong(f"`{text[:40]}` lies outside of the years 1970 to 9998", _HINT)
    return found


def is_told(seconds: float) -> bool:
    """Whether a time is one that a log can hold, and that every zone can tell."""
    return 0.0 <= seconds < _LAST_SECONDS


def sequence(text: str) -> int | None:
    """A place in the log; None: the digits are not those of one."""
    if not text.isascii() or not text.isdecimal() or len(text.lstrip("0")) > 19:
        return None
    found = int(text.lstrip("0") or "0")
    return found if found <= _LAST_SEQUENCE else None


def rfc3339_seconds(text: str) -> float | None:
    """Seconds since 1970 of a time with its zone, in either case of letters. None: not such a time."""
    try:
        found = datetime.fromisoformat(text.upper())
        seconds = None if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds is not None and is_told(seconds) else None


def _moment(wanted: str, now: float, zone: tzinfo) -> Moment | Wrong:
    if _SEQUENCE.fullmatch(wanted):
        place = sequence(wanted.replace(",", "").replace("_", ""))
        if not place:
            return Wrong(f"there is no sequence `{wanted[:40]}`", "the first one of a log is 1")
        return AtSequence(place)
    if wanted in {"now", ""}:
        return at_time(now, zone) if wanted else Wrong("no moment is given", _HINT)
    if wanted.startswith("-"):
        return _ago(wanted, now, zone)
    if (found := _CLOCK.fullmatch(wanted)) and any(found.groups()):
        return _of_the_clock(found[1], found[2], now, zone)
    return _rfc3339(wanted, zone)


def at_time(seconds: float, zone: tzinfo) -> AtTime:
    """A time as it reads in a zone."""
    return AtTime(seconds, shown(seconds, zone))


def shown(seconds: float, zone: tzinfo) -> str:
    """`2026-11-29 03:12:00 CET`: no local time without its zone."""
    local = datetime.fromtimestamp(seconds, zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {zone_name(seconds, zone)}"


def zone_name(seconds: float, zone: tzinfo) -> str:
    """`CET` or `CEST`, as it is in force at a time."""
    local = datetime.fromtimestamp(seconds, zone)
    return local.tzname() or f"{local:%z}"


def clock(seconds: float, zone: tzinfo) -> str:
    """`11-29 03:12:00`: for a column whose heading names the zone."""
    return f"{datetime.fromtimestamp(seconds, zone):%m-%d %H:%M:%S}"


def _ago(text: str, now: float, zone: tzinfo) -> Moment | Wrong:
    match duration(text[1:]):
        case Wrong(message):
            bare = text[1:].isdecimal()
            hint = f"write `{text}m` for minutes, `{text}h` for hours" if bare else _AGO_HINT
            return Wrong(message, hint)
        case float(seconds):
            return at_time(now - seconds, zone)
        case _:
            return Wrong(f"`-{OFF}` is no length of time", _AGO_HINT)


def _rfc3339(text: str, zone: tzinfo) -> Moment | Wrong:
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        return Wrong(f"`{text[:40]}` is not a moment", _HINT)
    if found.tzinfo is None:
        return _local(found, zone)
    return at_time(found.timestamp(), zone)


def _of_the_clock(day: str | None, clock: str | None, now: float, zone: tzinfo) -> Moment | Wrong:
    today = datetime.fromtimestamp(now, zone).date()
    try:
        hour, minute, second = [int(part) for part in f"{clock or '0:00'}:0".split(":")][:3]
        wanted = datetime.combine(_day(day, today), datetime.min.time()).replace(
            hour=hour, minute=minute, second=second
        )
    except ValueError as error:
        return Wrong(f"no such time: {error}", _HINT)
    found = _local(wanted, zone)
    if day is None and isinstance(found, AtTime) and found.seconds > now:
        return _local(wanted - timedelta(days=1), zone)  # The last time that the clock showed this.
    return found


def _day(word: str | None, today: date) -> date:
    if word is None or word == "today":
        return today
    return today - timedelta(days=1) if word == "yesterday" else date.fromisoformat(word)


def _local(wanted: datetime, zone: tzinfo) -> Moment | Wrong:
    aware = wanted.replace(tzinfo=zone)
    seconds = aware.timestamp()
    if datetime.fromtimestamp(seconds, UTC).astimezone(zone).replace(tzinfo=None) != wanted:
        after = datetime.fromtimestamp(seconds, zone)
        return Wrong(f"the clocks skip {wanted:%Y-%m-%d %H:%M}", f"write `{after:%Y-%m-%d %H:%M}`")
    return at_time(seconds, zone)
