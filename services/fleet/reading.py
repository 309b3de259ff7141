"""Reads one stored document. Pure.

Nobody acts on what a newer version wrote: fields that this one does not know may change what the
others mean; and what stands where it must not is of nobody. So whoever takes a single document from
the log takes it from here.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import Document, Gone
from schemas.events import Event
from schemas.versions import from_older, version_of
from services.fleet.families import check_place, family_of

D = TypeVar("D", bound=Document)


class Read(Struct, Generic[D], frozen=True):
    """A document and the event that brought it."""

    event: Event
    document: D


class Unreadable(Struct, frozen=True):
    """No event, or not one with such a document."""

    reason: str


class Newer(Struct, frozen=True):
    """Only a newer version than this one may act on it."""

    type: str
    version: int
    known: int

    @property
    def reason(self) -> str:
        return f"{self.type} v{self.version} is newer than v{self.known}, which this version knows"


def read(subject: str, payload: bytes, kind: type[D]) -> Read[D] | Unreadable | Newer:
    """Envelope, version, document, and whether it may stand on this subject of the log."""
    try:
        event = codec.decode_event(payload)
        known = version_of(kind)
        if event.v > known:
            return Newer(event.type, event.v, known)
        if event.v == known:
            document: D | Gone = codec.decode(event.data, kind)
        else:
            document = from_older(event.data, kind, event.v)
        found = family_of(subject) if subject.startswith(subjects.STATE_ROOT) else None
        if found is not None:
            check_place(found, event.src, document)
    except msgspec.DecodeError as error:
        return Unreadable(str(error))
    if isinstance(document, kind):
        return Read(event, document)
    return Unreadable("it is gone")
