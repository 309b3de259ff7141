"""What a walk through the log asks for, of a log in memory as of a server. Pure."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from msgspec import Struct

from schemas.ids import EventId
from services.fleet.telling.happened import Happened


class Past(Struct, frozen=True):
    """All that is kept of these subjects up to the moment asked about, in the log's order."""

    subjects: tuple[str, ...]


class Find(Struct, frozen=True):
    """One event by its id. `near`: sequence of an event that names it."""

    id: EventId
    near: int
    hints: tuple[str, ...] = ()
    """Subjects that may hold it, where neither its id nor its neighbours lead there."""


T = TypeVar("T")
Ask = Past | Find
Asking = Generator[Ask, Sequence[Happened], T]
"""Is sent what was found, and returns a T."""
