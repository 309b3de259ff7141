"""One event as one line of JSON, with its payload byte for byte. Pure.

A payload that is one line of valid JSON stands as it is under `event`, so that the files can be read
with any tool. Any other stands under `raw`, in base64.
"""

import base64
import binascii

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from schemas import codec
from services.log.stored import Stored


class _Line(Struct, frozen=True, gc=False, kw_only=True):
    seq: int
    at: str
    """When LOG stored it; empty where that is not known."""
    subject: str
    event: Raw | UnsetType = UNSET
    raw: str | UnsetType = UNSET


_decoder = msgspec.json.Decoder(_Line)


def encode(stored: Stored) -> bytes:
    """Ends with its line feed."""
    at = codec.rfc3339(stored.stamp) if stored.stamp else ""
    if _stands_alone(stored.payload):
        line = _Line(seq=stored.sequence, at=at, subject=stored.subject, event=Raw(stored.payload))
    else:
        raw = base64.b64encode(stored.payload).decode()
        line = _Line(seq=stored.sequence, at=at, subject=stored.subject, raw=raw)
    return msgspec.json.encode(line) + b"\n"


def _stands_alone(payload: bytes) -> bool:
    """Whether it comes back out of a line as it went in, for every reader of JSON."""
    if b"\n" in payload or payload[:1] != b"{" or payload[-1:] != b"}":
        return False
    try:
        payload.decode()
        msgspec.json.decode(payload)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def decode(line: bytes) -> Stored:
    """Raises ValueError on what `encode` has not written."""
    try:
        found = _decoder.decode(line)
        payload = _payload(found)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise ValueError(f"no line of a journal: {error}") from error
    return Stored(found.seq, found.subject, payload, codec.seconds(found.at) if found.at else 0.0)


def _payload(found: _Line) -> bytes:
    if isinstance(found.event, Raw):
        return bytes(found.event)
    if isinstance(found.raw, str):
        return base64.b64decode(found.raw, validate=True)
    raise ValueError("no line of a journal: neither `event` nor `raw`")
