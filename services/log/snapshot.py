"""Reading documents back: one by direct get, all of STATE, or the past of one subject.

STATE is read from its first message to its last while it is being written to. Nothing is missed: the
server feeds it in LOG's order, so what comes in behind the reader is either read at the end or has a
LOG sequence above S, and is read from LOG's tail.

How it fails:
- NATS away, a stream missing, or an answer that does not come: Unavailable, never None and never a
  part of STATE. The caller asks again.
- A document in neither LOG nor STATE is None: unknown, which is not "stop".
- STATE lags LOG: in a cluster by up to a minute once a server is lost, since the server takes so long
  to miss the feed that came from there. What STATE lacks stands above S, also then.
- In a cluster a direct get may be answered by a replica that lags; who must not miss a write compares
  sequences with what others announce.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from schemas import codec, subjects
from services.log.api import ApiError
from services.log.bulk import state_parts
from services.log.connect import Connection
from services.log.message import Message, Unavailable, status
from services.log.pull import COUNTS, Ended, Miscounted, Pull, position
from services.log.stored import Stored

GET_TIMEOUT_SECONDS = 3.0
NOT_FOUND = "404"


async def read_state(connection: Connection) -> tuple[list[Stored], int]:
    """All of STATE, and S: the highest LOG sequence in it, 0 if it is empty."""
    documents: list[Stored] = []
    async with aclosing(read_state_in_parts(connection)) as parts:
        async for part in parts:
            documents += part
    return documents, max((found.sequence for found in documents), default=0)


async def read_state_in_parts(connection: Connection) -> AsyncGenerator[list[Stored]]:
    """All of STATE, as it comes: for who does something with a part while the next is on its way.

    Whatever was made of the parts is worth nothing if it ends by Unavailable.
    """
    try:
        async with aclosing(state_parts(connection)) as parts:
            async for part in parts:
                yield part
    except (ApiError, Ended) as error:
        raise Unavailable(f"{subjects.STATE} was not read to its end: {error}") from error


async def read_history(connection: Connection, subject: str, below: int) -> list[Stored]:
    """What LOG still holds of a log subject before a LOG sequence, oldest first."""
    config = {"deliver_policy": "all", "filter_subject": subject}
    messages = await read_whole(connection, subjects.LOG, config)
    found = [(position(message.reply), message.payload) for message in messages]
    return [
        Stored(at.sequence, subject, payload, at.stamp)
        for at, payload in found
        if at.sequence < below
    ]


async def read_whole(connection: Connection, stream: str, config: dict[str, Any]) -> list[Message]:
    """All messages of a stream that a consumer's config lets through, up to where it ends now."""
    try:
        for _ in range(COUNTS - 1):
            with suppress(Miscounted):
                return await _read_once(connection, stream, config)
        return await _read_once(connection, stream, config)
    except (ApiError, Ended) as error:
        raise Unavailable(f"{stream} was not read to its end: {error}") from error


async def _read_once(connection: Connection, stream: str, config: dict[str, Any]) -> list[Message]:
    found: list[Message] = []
    async with Pull(connection, stream, config) as pull:
        while pull.pending and (messages := await pull.take()):
            found += messages
    if pull.pending:
        raise Miscounted(pull.pending)
    return found


async def get(connection: Connection, subject: str) -> Stored | None:
    """The last message of a log subject from LOG, else from STATE; None: in neither."""
    return await get_from_log(connection, subject) or await _get_from_state(connection, subject)


async def get_from_log(connection: Connection, subject: str) -> Stored | None:
    """The last message of a log subject that LOG still holds: what a guard is compared with."""
    found = await direct(connection, subjects.LOG, subject)
    if found is None:
        return None
    headers = found.headers
    stamp = codec.seconds(headers["Nats-Time-Stamp"])
    return Stored(int(headers["Nats-Sequence"]), subject, found.payload, stamp)


async def _get_from_state(connection: Connection, subject: str) -> Stored | None:
    found = await direct(connection, subjects.STATE, subject)
    return None if found is None else _from_state(found, subject)


def _from_state(message: Message, subject: str = "") -> Stored:
    return Stored(source_sequence(message), subject or message.subject, message.payload)


def source_sequence(message: Message) -> int:
    """LOG sequence of a message of STATE: second word of where the server took it from."""
    return int(message.headers["Nats-Stream-Source"].split()[1])


async def direct(connection: Connection, stream: str, subject: str) -> Message | None:
    """The last message of a subject of any stream, as the server sends it; None: there is none."""
    verb = f"$JS.API.DIRECT.GET.{stream}.{subject}"
    answer = await connection.request(verb, b"", GET_TIMEOUT_SECONDS)
    match status(answer):
        case "":
            return answer
        case code if code == NOT_FOUND:
            return None
        case code:
            raise Unavailable(f"{verb}: {code} {answer.headers.get('Description', '')}")
