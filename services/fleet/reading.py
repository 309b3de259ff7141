"""Reads one stored document. Pure.

Nobody acts on what a newer version wrote: fields that this one does not know may change what the
others mean. So whoever takes a single document from the log takes it from here.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.events import VERSION, Event

D = TypeVar("D")


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

    @property
    def reason(self) -> str:
        return f"{self.type} v{self.version} is newer than v{VERSION}, which this version knows"


def read(payload: bytes, kind: type[D]) -> Read[D] | Unreadable | Newer:
    """Envelope, version, document."""
    try:
        event = codec.decode_event(payload)
        if event.v > VERSION:
            return Newer(event.type, event.v)
        return Read(event, codec.decode(event.data, kind))
    except msgspec.DecodeError as error:
        return Unreadable(str(error))
