"""One message of the log, read as far as it can be: what it says happened, and to what. Pure."""

from msgspec import DecodeError, Struct

from schemas import codec, subjects
from schemas.documents import CommandRecord, Document
from schemas.events import Event
from schemas.ids import EventId
from services.fleet.families import family_of
from services.fleet.reading import Newer, Read, read_any


class Happened(Struct, frozen=True):
    """`event` None: not readable at all. `document` None: not readable, or not known to this version."""

    sequence: int
    subject: str
    event: Event | None
    document: Document | None
    fault: str = ""
    """Why the event or its document cannot be read; empty: there is nothing wrong with it."""
    stamp: float = 0.0
    """When LOG stored it, in seconds since 1970; 0.0: not known."""

    @property
    def id(self) -> EventId | None:
        return None if self.event is None else self.event.id


def happened(sequence: int, subject: str, payload: bytes, stamp: float = 0.0) -> Happened:
    """Read a stored message."""
    try:
        event = codec.decode_event(payload)
    except DecodeError as error:
        return Happened(sequence, subject, None, None, f"no event of ours: {error}", stamp)
    document, fault = _document(subject, payload)
    return Happened(sequence, subject, event, document, fault, stamp)


def _document(subject: str, payload: bytes) -> tuple[Document | None, str]:
    """The document, or why it cannot be read; neither, of what only a newer version knows."""
    kind = _kind(subject)
    if kind is None:
        return None, ""
    found = read_any(subject, payload, kind)
    if isinstance(found, Read):
        return found.document, ""
    return None, "" if isinstance(found, Newer) else found.reason


def _kind(subject: str) -> type[Document] | None:
    if subject.startswith(subjects.STATE_ROOT):
        family = family_of(subject)
        return None if family is None else family[0].struct
    return CommandRecord if subject.startswith(subjects.command("")) else None
