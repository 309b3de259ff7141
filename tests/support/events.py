"""Small events for tests of the log, and reading the log back without our own readers' cleverness."""

import itertools

from schemas import codec, subjects
from schemas.events import Event
from schemas.ids import EventId
from services.log.append import Sealed, claim
from services.log.connect import Connection
from services.log.message import status
from services.log.snapshot import NOT_FOUND
from services.log.streams import head

_numbers = itertools.count(1)


def an_event(subject: str, value: object = None, id: str = "", size: int = 0) -> Sealed:  # noqa: A002
    """An event with `value` as its document, padded to at least `size` bytes."""
    event = Event(
        id=EventId(id or f"event-{next(_numbers)}"),
        log="12345678",
        type="test.written",
        at="2026-11-30T12:00:00.000000Z",
        src="control/test",
        data=codec.raw({"value": value, "pad": "x" * size}),
    )
    return Sealed(subject, event.id, codec.encode(event))


def value_of(payload: bytes) -> object:
    """What was given to `an_event`."""
    return codec.decode(codec.decode_event(payload).data, dict[str, object])["value"]


def id_of(payload: bytes) -> str:
    return codec.decode_event(payload).id


async def lead(connection: Connection, expected: int = 0) -> int:
    """Claim, and return the fence."""
    fence = await claim(connection, an_event(subjects.CONTROL_EPOCH), expected)
    assert fence is not None
    return fence


async def whole_log(connection: Connection) -> list[tuple[str, str]]:
    """Subject and event id of all that LOG holds, one get a sequence."""
    found: list[tuple[str, str]] = []
    for sequence in range(1, await head(connection) + 1):
        body = b'{"seq":%d}' % sequence
        message = await connection.request(f"$JS.API.DIRECT.GET.{subjects.LOG}", body, 5.0)
        if status(message) != NOT_FOUND:
            found.append((message.headers["Nats-Subject"], id_of(message.payload)))
    return found
