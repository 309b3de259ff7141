"""Reads one stored document. Pure.

Nobody acts on what a newer version wrote: fields that this one does not know may change what the
others mean; and what stands where it must not is of nobody. So whoever takes a single document from
the log takes it from here.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import Document
from schemas.events import Event
from schemas.versions import version_of
from services.fleet.families import check_place, decode_document, family_of

D = TypeVar("D", bound=Document)


class Read(Struct, Generic[D], frozen=True):
    """A document and the event that brought it."""

    event: Event
    document: D


class Unreadable(Struct, frozen=True):
    """No event, or not one with such a document."""

    reason: str


GONE = Unreadable("it is gone")
"""Retired: there is no document."""


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
    match read_any(subject, payload, kind):
        case Read(event=event, document=document):
            return Read(event, document) if isinstance(document, kind) else GONE
        case other:
            return other


def read_any(
    subject: str, payload: bytes, kind: type[Document]
) -> Read[Document] | Unreadable | Newer:
    """As `read`; a document of this kind, or the Gone that stands in its place."""
    try:
        event = codec.decode_event(payload)
        known = event.v <= version_of(kind)
        document = decode_document(event, kind) if known else None
        found = family_of(subject) if subject.startswith(subjects.STATE_ROOT) else None
        if found is not None:
            check_place(found, event.src, document)
    except msgspec.DecodeError as error:
        return Unreadable(str(error))
    if document is None:
        return Newer(event.type, event.v, version_of(kind))
    return Read(event, document)
