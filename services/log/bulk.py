"""All of STATE at once: a socket of its own and a scanner, for what is read in hundreds of thousands.

The same pull consumer as `pull.py` makes, believed no more: what is asked for is counted off, the
consumer's own count must be ours, and something must come with every beat. What nats-py does for each
message costs more than the server's part. This does little, and of the headers reads only the one
that says where LOG holds the message.

How it fails: NATS away or no consumer: Unavailable, ApiError. A message missing, the consumer gone, no
beat, what is no message of STATE: Ended. Whoever has taken a part by then has a part, and knows it.
Messages that are said to be left and do not come: another consumer counts anew, from there on.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from schemas import codec, subjects
from services.log import api, pull, wire
from services.log.connect import Connection
from services.log.pull import Ended, Miscounted, Position, position
from services.log.stored import Stored

BATCH = 5000
"""Messages asked for at a time."""
IN_FLIGHT = 2
"""Requests: while we work at what one of them brought, the server sends what the next one asks for."""
CHUNK_BYTES = 1 << 20
_SECOND = 1_000_000_000
_SOURCE = b"Nats-Stream-Source: "
_BEAT = b"NATS/1.0 100"
_LAST = b"Nats-Last-Consumer: "
_END = b"\r\n"


class Scanned(Struct):
    """What one look at the bytes that have come gave."""

    documents: list[Stored]
    reply: str = ""
    """Of the last document: its place in the consumer, see `pull.position`."""
    beat: tuple[int, int] | None = None
    """Documents scanned before the last beat, and how many it says the consumer has sent in all."""
    pings: int = 0
    refused: str = ""
    """The consumer or the server ended it, and why."""
    used: int = 0
    """Bytes that need not be looked at again."""


def scan(data: bytes) -> Scanned:
    """Every whole frame in `data`, from its start. Raises Ended on what is no message of STATE."""
    found = Scanned([])
    find, add = data.find, found.documents.append
    at, end, reply = 0, len(data), b""
    while (line := find(_END, at)) >= 0:
        words = data[at:line].split(b" ")
        at = line + 2
        if words[0] != b"HMSG":  # HMSG subject sid reply header-size size
            _heed_line(found, words)
        else:
            after = at + int(words[-1])
            if after + 2 > end:
                break
            payload = at + int(words[-2])
            source = find(_SOURCE, at, payload)
            if source < 0:
                _heed_status(found, data[at:payload])
            else:  # Nats-Stream-Source: stream sequence filter …
                sequence = data[source + len(_SOURCE) : payload].split(b" ", 2)[1]
                add(Stored(int(sequence), words[1].decode(), data[payload:after]))
                reply = words[3]
            at = after + 2
        found.used = at
    found.reply = reply.decode()
    return found


def _heed_line(found: Scanned, words: list[bytes]) -> None:
    """INFO, PONG and +OK ask for nothing."""
    if words[0] == b"PING":
        found.pings += 1
    elif words[0] == b"-ERR":
        found.refused = b" ".join(words).decode(errors="replace")
    elif words[0] == b"MSG":
        raise Ended(f"{words[1]!r} does not say where LOG holds it")


def _heed_status(found: Scanned, header: bytes) -> None:
    """A beat says that the consumer lives; any other word of the server's own ends the read."""
    if not header.startswith(_BEAT):
        found.refused = header.partition(_END)[0].decode(errors="replace")
        return
    _, named, rest = header.partition(_LAST)
    if named:
        found.beat = len(found.documents), int(rest.partition(_END)[0])


async def state_parts(connection: Connection) -> AsyncGenerator[list[Stored]]:
    """All of STATE in its order, as it comes. Ends at its end, and not before, or raises."""
    read, tries = _Reading(), 0
    while True:
        try:
            async with aclosing(_parts(connection, read)) as parts:
                async for documents in parts:
                    yield documents
        except Miscounted:
            tries += 1
            if tries == pull.COUNTS:
                raise
            read = _Reading(read.sequence)
        else:
            return


class _Reading(Struct):
    """How far one consumer has been read."""

    sequence: int = 0
    """Of STATE, up to which all has come."""
    delivered: int = 0
    left: int = 0
    idle_beats: int = 0


async def _parts(connection: Connection, read: _Reading) -> AsyncGenerator[list[Stored]]:
    inbox = f"{connection.inbox}.{secrets.token_hex(8)}"
    name = f"b{secrets.token_hex(8)}"
    async with wire.opened(connection.door, connection.name, inbox) as (reader, writer):
        try:
            read.left = await _create(connection, name, read.sequence + 1)
            verb = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STATE}.{name}"
            ask = _publication(verb, inbox, _request())
            asked, rest = 0, b""
            while read.left:
                while asked - read.delivered <= BATCH * (IN_FLIGHT - 1):
                    writer.write(ask)
                    asked += BATCH
                data = rest + await _more(reader)
                found = scan(data)
                rest = data[found.used :]
                writer.write(b"PONG\r\n" * found.pings)
                _check(found, read)
                yield found.documents
        finally:
            await pull.delete(connection, subjects.STATE, name)


def _check(found: Scanned, read: _Reading) -> None:
    """Raises Ended if any is missing, or if there will be no more."""
    before = read.delivered
    if found.documents:
        _count(read, position(found.reply), len(found.documents))
    if found.beat is not None and found.beat[1] != before + found.beat[0]:
        raise Ended("a message was lost before a beat")
    if found.refused and read.left:
        raise Ended(f"{found.refused}; {read.left} messages are missing")
    read.idle_beats += found.beat is not None
    if read.left and read.idle_beats == pull.IDLE_BEATS:
        raise Miscounted(read.left)


def _count(read: _Reading, at: Position, documents: int) -> None:
    read.delivered += documents
    if at.delivered != read.delivered:
        raise Ended("a message was lost")
    read.sequence, read.left, read.idle_beats = at.sequence, at.pending, 0


async def _create(connection: Connection, name: str, first: int) -> int:
    """A consumer from a sequence of STATE on. Returns how many there are."""
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": first, "name": name}
    body = {"stream_name": subjects.STATE, "config": config | pull.EPHEMERAL}
    verb = f"CONSUMER.CREATE.{subjects.STATE}.{name}"
    return (await api.call(connection, verb, body, pull.Created)).num_pending


def _request() -> bytes:
    return codec.encode(
        {
            "batch": BATCH,
            "expires": int(pull.EXPIRES_SECONDS * _SECOND),
            "idle_heartbeat": int(pull.BEAT_SECONDS * _SECOND),
        }
    )


def _publication(subject: str, reply: str, payload: bytes) -> bytes:
    return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + _END


async def _more(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(pull.SILENCE_SECONDS):
            data = await reader.read(CHUNK_BYTES)
    except TimeoutError:
        raise Ended(f"nothing for {pull.SILENCE_SECONDS:g} s, not even a beat") from None
    except OSError as error:
        raise Ended(f"connection lost: {error}") from error
    if not data:
        raise Ended("connection lost")
    return data
