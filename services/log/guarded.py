"""One write under one expectation: what its subject holds in LOG.

How it fails:
- The subject holds something else: Refused, with what stands there. Nothing was written.
- In a cluster of servers, a replica that lags tells of an older document than the one that refused it:
  Unavailable, and the next try finds them agreed.
- The ack is lost: Unavailable. Given again with the same event it cannot land twice: the server
  answers `duplicate`, or refuses and our own event stands there, which is Written too.
"""

from msgspec import DecodeError, Struct

from schemas import codec, subjects
from schemas.ids import EventId
from services.log import api
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Unavailable
from services.log.snapshot import get_from_log
from services.log.stored import Stored

MAX_EVENT_BYTES = 1024 * 1024 - 1024
"""LOG takes 1 MiB a message, headers included."""
ACK_SECONDS = 5.0


class Sealed(Struct, frozen=True, gc=False):
    """An event as it will stand in the log. Its id is that of the envelope and never changes."""

    subject: str
    id: EventId
    payload: bytes


class Written(Struct, frozen=True):
    """The event stands in the log."""

    sequence: int


class Refused(Struct, frozen=True):
    """The subject does not hold what was expected."""

    standing: Stored | None
    """What it holds in LOG; None: nothing, expect 0."""


async def write(connection: Connection, event: Sealed, expected: int) -> Written | Refused:
    """Write if `expected` is the LOG sequence of the subject's last message there, 0 for none.

    Raises Unavailable if the outcome is not known, ApiError if the server refuses it for good.
    """
    headers = {"Nats-Msg-Id": event.id} | expect(expected)
    reply = await connection.request(event.subject, event.payload, ACK_SECONDS, headers)
    ack = api.pub_ack(reply)
    match ack.code:
        case 0:
            return Written(ack.seq)
        case api.WRONG_LAST_SEQUENCE:
            standing = await get_from_log(connection, event.subject)
            if standing is not None and carries(standing, event.id):
                return Written(standing.sequence)
            _check_lag(ack.description, standing)
            return Refused(standing)
        case api.ANOTHER_IN_FLIGHT | api.IN_PROCESS:
            raise Unavailable(f"{event.subject}: another write is in flight")
        case code:
            raise ApiError(code, ack.description)


def _check_lag(refusal: str, standing: Stored | None) -> None:
    """The server names the sequence that it compared with, `wrong last sequence: 392`, as a rule."""
    named = refusal.rpartition(" ")[2]
    if named.isdecimal() and int(named) > (0 if standing is None else standing.sequence):
        raise Unavailable(f"what refused the write at {named} is not to be read yet")


def carries(found: Stored, event: EventId) -> bool:
    """Whether a stored message is that very event."""
    try:
        return codec.decode_event(found.payload).id == event
    except DecodeError:
        return False


def expect(sequence: int) -> dict[str, str]:
    """The guard of a write, as the server wants it."""
    return {"Nats-Expected-Last-Subject-Sequence": str(sequence)}


def check(event: Sealed) -> None:
    """Raises ValueError on what no log could take."""
    if len(event.payload) > MAX_EVENT_BYTES:
        raise ValueError(f"{event.subject}: {len(event.payload)} of {MAX_EVENT_BYTES} bytes")
    if not event.subject.startswith(subjects.LOG_ROOT):
        raise ValueError(f"{event.subject} is not a subject of the log")
