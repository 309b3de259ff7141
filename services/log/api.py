"""Calls of JetStream's API, raw: its answers are errors with a code, or a document."""

from typing import TypeVar

from msgspec import Struct

from schemas import codec
from services.log.connect import Connection
from services.log.message import Message, Unavailable

T = TypeVar("T")

TIMEOUT_SECONDS = 3.0

TRY_LATER = 503
"""JetStream has no leader, or is not up yet."""

STREAM_NAME_IN_USE = 10058
STREAM_NOT_FOUND = 10059
WRONG_LAST_SEQUENCE = 10071
IN_PROCESS = 10158
"""In a cluster: the same event was sent before, and is on its way into the stream."""
ANOTHER_IN_FLIGHT = 10164
BATCH_INCOMPLETE = 10176
INSUFFICIENT_RESOURCES = 10023
NO_STORAGE = 10047
STORE_FAILED = 10077
"""Among others: the stream has reached its limit of bytes or messages."""
BATCH_DUPLICATE = 10201


class ApiError(Exception):
    """JetStream said no."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description

    @property
    def full(self) -> bool:
        """There is no room: in the stream, or in what the server may use of its disk."""
        return self.code in (INSUFFICIENT_RESOURCES, NO_STORAGE, STORE_FAILED)


class Error(Struct, frozen=True):
    """The error of an answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(Struct, frozen=True):
    error: Error | None = None


async def call(
    connection: Connection,
    verb: str,
    body: object | None,
    answer: type[T],
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> T:
    """`$JS.API.<verb>` with a JSON body. Raises ApiError, or Unavailable for no answer."""
    payload = b"" if body is None else codec.encode(body)
    reply = await connection.request(f"$JS.API.{verb}", payload, timeout_seconds)
    error = codec.decode(reply.payload, _Answer).error
    if error is not None and error.code == TRY_LATER:
        raise Unavailable(f"{verb}: {error.description}")
    if error is not None:
        raise ApiError(error.err_code, error.description)
    return codec.decode(reply.payload, answer)


class PubAck(Struct, frozen=True):
    """The answer to a write."""

    seq: int = 0
    duplicate: bool = False
    error: Error | None = None

    @property
    def code(self) -> int:
        """0 for a write that was taken."""
        return 0 if self.error is None else self.error.err_code

    @property
    def description(self) -> str:
        """Why it was not taken, in the server's words."""
        return "" if self.error is None else self.error.description


def pub_ack(reply: Message) -> PubAck:
    """Decoded answer to a write."""
    return codec.decode(reply.payload, PubAck)
