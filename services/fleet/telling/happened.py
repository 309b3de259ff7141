"""One message of the log, read as far as it can be: what it says happened, and to what. Pure."""

from msgspec import DecodeError, Struct

from schemas import codec, subjects
from schemas.documents import CommandRecord, Document
from schemas.events import Event
from schemas.ids import EventId
from services.fleet.families import family_of
from services.fleet.reading import Read, read_any


class Happened(Struct, frozen=True):
    """`event` None: not readable at all. `document` None: of a family or version not known here."""

    sequence: int
    subject: str
    event: Event | None
    document: Document | None

    @property
    def id(self) -> EventId | None:
        return None if self.event is None else self.event.id


def happened(sequence: int, subject: str, payload: bytes) -> Happened:
    """Read a stored message."""
    try:
        event = codec.decode_event(payload)
    except DecodeError:
        return Happened(sequence, subject, None, None)
    return Happened(sequence, subject, event, _document(subject, payload))


def _document(subject: str, payload: bytes) -> Document | None:
    kind = _kind(subject)
    found = None if kind is None else read_any(subject, payload, kind)
    return found.document if isinstance(found, Read) else None


def _kind(subject: str) -> type[Document] | None:
    if subject.startswith(subjects.STATE_ROOT):
        family = family_of(subject)
        return None if family is None else family[0].struct
    return CommandRecord if subject.startswith(subjects.command("")) else None
