"""The one encoder and the decoders. Deterministic: equal values give equal bytes on every machine."""

from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from schemas.events import Event

T = TypeVar("T")

TOO_DEEP = "JSON is nested too deeply"
"""Whoever sends that ends no reader: it is as unreadable as any other rubbish."""

_encoder = msgspec.json.Encoder(order="deterministic")
_event_decoder = msgspec.json.Decoder(Event)


def encode(value: object) -> bytes:
    """Compact JSON; keys of dicts sorted, fields of structs in their order."""
    return _encoder.encode(value)


def raw(value: object) -> msgspec.Raw:
    """A value encoded for `Event.data`."""
    return msgspec.Raw(_encoder.encode(value))


def decode_event(payload: bytes) -> Event:
    """The envelope alone; `data` stays undecoded. Raises msgspec.DecodeError on anything else."""
    try:
        return _event_decoder.decode(payload)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error


def decode(payload: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Raises msgspec.DecodeError (ValidationError is one) with the path of the fault."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error


def rfc3339(seconds: float) -> str:
    """UTC with microseconds: 2026-11-30T18:16:30.123456Z."""
    stamp = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return stamp.removesuffix("+00:00") + "Z"


def seconds(at: str) -> float:
    """Seconds since 1970 of an RFC 3339 time. Raises ValueError."""
    return datetime.fromisoformat(at).timestamp()
