"""Ids of events: UUIDs of version 7, so that they sort by time."""

import secrets
from uuid import UUID

from schemas.ids import EventId

_MILLIS_BITS = 48
_VERSION = 7
_VARIANT = 0b10


def new_event_id(now: float) -> EventId:
    """`now` in seconds since 1970. Never the same twice."""
    millis = int(now * 1000) & ((1 << _MILLIS_BITS) - 1)
    number = (millis << 80) | (_VERSION << 76) | (secrets.randbits(12) << 64)
    number |= (_VARIANT << 62) | secrets.randbits(62)
    return EventId(str(UUID(int=number)))


def made_at(event: str) -> float | None:
    """Seconds since 1970 when an id was made, by its maker's clock. None: not an id of this kind."""
    try:
        number = UUID(event[:36])  # A command's own events have an ending.
    except ValueError:
        return None
    return (number.int >> 80) / 1000 if number.version == _VERSION else None
