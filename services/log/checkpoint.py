"""Dumps of the state with their sequence, on a stream of their own: where a look into the past begins.

A dump is one compressed sequence of documents, verbatim and with their LOG sequences, cut in chunks;
its last message names their count and hash. Folding it gives what every event up to its sequence gives.

How it fails:
- Its writer dies on the way: what it wrote is named by no last message, and never read.
- A chunk is lost or changed: `read` says why the dump is of no use, and the next older one is taken.
- NATS away: Unavailable. The same dump may be written again; a chunk replaces its like.
"""

import asyncio
import hashlib
import secrets
import zlib
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from schemas import codec, subjects
from schemas.ids import LogId
from services.log import api
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Unavailable
from services.log.snapshot import direct, read_whole
from services.log.stored import Stored

CHUNK_BYTES = 512 * 1024
FORMAT = 1
ACK_SECONDS = 5.0
TRIES = 3
_AT_ONCE = 500
"""Documents encoded in one go: a thread that packs holds the interpreter for under a millisecond."""
_LEVEL = 1
_WINDOW = 31
"""gzip's, which has a checksum of its own."""


class Checkpoint(Struct, frozen=True):
    """The last message of a dump."""

    id: str
    log: LogId
    sequence: int
    """All of LOG up to here is in it."""
    at: str
    """When LOG stored that, or later; RFC 3339."""
    documents: int
    chunks: int
    sha256: str
    """Of the chunks, one behind the other."""
    format: int = FORMAT


class Newest(Struct, frozen=True):
    """The last one that was written."""

    checkpoint: Checkpoint
    stamp: float
    """When, by the server's clock, in seconds since 1970."""


class _Document(Struct, frozen=True, array_like=True):
    sequence: int
    subject: str
    payload: bytes


def pack(documents: Sequence[Stored]) -> list[bytes]:
    """Chunks. Takes 0.3 s for 60,000 documents: call it in a thread."""
    whole = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW)
    encoder = msgspec.msgpack.Encoder()
    packed = bytearray()
    for start in range(0, len(documents), _AT_ONCE):
        for stored in documents[start : start + _AT_ONCE]:
            document = _Document(stored.sequence, stored.subject, stored.payload)
            framed = encoder.encode(document)
            packed += whole.compress(len(framed).to_bytes(4) + framed)
    packed += whole.flush()
    return [bytes(packed[at : at + CHUNK_BYTES]) for at in range(0, len(packed), CHUNK_BYTES)]


def unpack(packed: bytes) -> Iterator[Stored]:
    """The documents, in their order. Raises ValueError on anything else."""
    try:
        content = zlib.decompress(packed, _WINDOW)
        decoder = msgspec.msgpack.Decoder(_Document)
        at = 0
        while at < len(content):
            end = at + 4 + int.from_bytes(content[at : at + 4])
            found = decoder.decode(content[at + 4 : end])
            yield Stored(found.sequence, found.subject, found.payload)
            at = end
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"no documents: {error}") from error


async def write(
    connection: Connection, log_id: LogId, sequence: int, at: str, documents: Sequence[Stored]
) -> Checkpoint:
    """It counts once this returns. Raises Unavailable, ApiError."""
    chunks = await asyncio.to_thread(pack, documents)
    about = Checkpoint(
        id=secrets.token_hex(8),  # Two leaders never mix their chunks.
        log=log_id,
        sequence=sequence,
        at=at,
        documents=len(documents),
        chunks=len(chunks),
        sha256=hashlib.sha256(b"".join(chunks)).hexdigest(),
    )
    for number, chunk in enumerate(chunks):
        await _store(connection, subjects.checkpoint_chunk(about.id, number), chunk)
    await _store(connection, subjects.CHECKPOINT_COMPLETE, codec.encode(about))
    return about


async def _store(connection: Connection, subject: str, payload: bytes) -> None:
    for number in range(TRIES):
        try:
            ack = api.pub_ack(await connection.request(subject, payload, ACK_SECONDS))
        except Unavailable:
            if number == TRIES - 1:
                raise
            await connection.wait_connected()
            continue
        if ack.code:
            raise ApiError(ack.code, ack.description)
        return


async def newest(connection: Connection) -> Newest | None:
    """The last one that was written to its end; None: there is none that is readable."""
    found = await direct(connection, subjects.CHECKPOINT, subjects.CHECKPOINT_COMPLETE)
    checkpoint = None if found is None else _checkpoint(found.payload)
    if found is None or checkpoint is None:
        return None
    return Newest(checkpoint, codec.seconds(found.headers["Nats-Time-Stamp"]))


async def complete(connection: Connection) -> list[Checkpoint]:
    """All that were written to their end, highest sequence first. Raises Unavailable."""
    config = {"deliver_policy": "all", "filter_subject": subjects.CHECKPOINT_COMPLETE}
    messages = await read_whole(connection, subjects.CHECKPOINT, config)
    found = [each for m in messages if (each := _checkpoint(m.payload)) is not None]
    return sorted(found, key=lambda each: each.sequence, reverse=True)


def _checkpoint(payload: bytes) -> Checkpoint | None:
    """None: of another version, or nobody's."""
    try:
        found = codec.decode(payload, Checkpoint)
    except msgspec.DecodeError:
        return None
    return found if found.format == FORMAT else None


async def read(connection: Connection, about: Checkpoint) -> list[Stored]:
    """Its documents. Raises Unavailable; ValueError if it is of no use, with the reason."""
    subject = subjects.checkpoint_chunk(about.id, "*")
    config = {"deliver_policy": "last_per_subject", "filter_subject": subject}
    messages = await read_whole(connection, subjects.CHECKPOINT, config)
    chunks = {int(m.subject.rpartition(".")[2]): m.payload for m in messages}
    if sorted(chunks) != list(range(about.chunks)):
        raise ValueError(f"{len(chunks)} of {about.chunks} chunks are there")
    packed = b"".join(chunks[number] for number in range(about.chunks))
    if hashlib.sha256(packed).hexdigest() != about.sha256:
        raise ValueError("its chunks are not what was written")
    documents = await asyncio.to_thread(lambda: list(unpack(packed)))
    if len(documents) != about.documents:
        raise ValueError(f"{len(documents)} of {about.documents} documents are there")
    return documents
