"""From where to where a request for events goes: one rule for sequences and for times. Shell.

What is yet to come is no moment of the log, but for the place of its next event, from which a follower
goes on; an asker's clock may be a little ahead. What is no longer kept can be neither where a sequence
says that an answer begins nor where it ends.
"""

from collections.abc import Mapping

from msgspec import Struct

from services.control.answering.past import (
    BadQuery,
    must_be_there,
    number_of,
    outside,
    time_that_has_come,
)
from services.fleet.telling import moments
from services.log.bases import parent
from services.log.connect import Connection
from services.log.history import Bounds, sequence_at

_BEFORE = 1e-6
"""Seconds: the stamps of a log are told to the microsecond."""


class Range(Struct, frozen=True):
    """Sequences, both included."""

    first: int
    last: int | None
    """None: it has no end."""


class _End(Struct, frozen=True):
    """Where it begins or ends, as it was said."""

    text: str
    sequence: int
    seconds: float | None = None
    """A time was said."""


async def range_of(
    connection: Connection, query: Mapping[str, str], kept: Bounds, now: float, usual: int | None
) -> Range:
    """`usual`: so many events, the last ones, where nothing says from when on; None: all.

    Raises BadQuery, Outside, Unavailable. `now`: the fleet's clock.
    """
    first = await _first(connection, query, kept, now)
    last = await _last(connection, query, kept, now)
    early = [end for end in (first, last) if end is not None and end.sequence < kept.first]
    if last in early or (first in early and "from" in query):
        raise outside(kept.first, kept.first_stamp, await parent(connection, kept.first))
    if first is not None and last is not None and _is_after(first, last):
        raise BadQuery(f"{first.text} is after {last.text}: it would end before it begins")
    end = None if last is None else last.sequence
    if first is not None:
        return Range(max(kept.first, first.sequence), end)
    newest = kept.last if end is None else end
    return Range(kept.first if usual is None else max(kept.first, newest - usual + 1), end)


def _is_after(first: _End, last: _End) -> bool:
    """The place just behind the end is where the last part of an answer leads: nothing is there."""
    if first.seconds is not None and last.seconds is not None:
        return first.seconds > last.seconds
    return first.sequence > last.sequence + 1


async def _first(
    connection: Connection, query: Mapping[str, str], kept: Bounds, now: float
) -> _End | None:
    if "from" in query and "since" in query:
        raise BadQuery("from and since both say where to begin: give one")
    text = query.get("from", query.get("since"))
    if text is None:
        return None
    number = number_of("from", text) if "from" in query else moments.sequence(text)
    if number is not None:
        must_be_there(number, kept.last + 1, kept)
        return _End(text, number)
    seconds = time_that_has_come(text, kept, now)
    return _End(text, await sequence_at(connection, seconds - _BEFORE) + 1, seconds)


async def _last(
    connection: Connection, query: Mapping[str, str], kept: Bounds, now: float
) -> _End | None:
    text = query.get("until")
    if text is None:
        return None
    number = moments.sequence(text)
    if number is not None:
        must_be_there(number, kept.last, kept)
        return _End(text, number)
    seconds = time_that_has_come(text, kept, now)
    return _End(text, await sequence_at(connection, seconds), seconds)
