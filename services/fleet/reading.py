"""Reads one stored document. Pure.

Nobody acts on what a newer version wrote: fields that this one does not know may change what the
others mean. So whoever takes a single document from the log takes it from here.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.documents import Document, Gone
from schemas.events import Event
from schemas.versions import from_older, version_of

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


def read(payload: bytes, kind: type[D]) -> Read[D] | Unreadable | Newer:
    """Envelope, version, document."""
    try:
        event = codec.decode_event(payload)
        known = version_of(kind)
        if event.v > known:
            return Newer(event.type, event.v, known)
        if event.v == known:
            return Read(event, codec.decode(event.data, kind))
        document = from_older(event.data, kind, event.v)
    except msgspec.DecodeError as error:
        return Unreadable(str(error))
    return Unreadable("it is gone") if isinstance(document, Gone) else Read(event, document)
