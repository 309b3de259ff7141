"""The past: LOG by sequence and by time.

How it fails:
- The consumer is lost while a range is read: another goes on behind the last message handed over.
  NATS away, or no headway in three tries: Unavailable. What was handed over is right, and the caller
  knows that it is not all. Never a range that is silently short.
- No LOG: LogMissing.
- LOG's age has taken the beginning: `bounds` says where LOG begins. A range read from before that
  begins with what is there.
"""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from schemas import codec, subjects
from services.log import api
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Message, Unavailable, status
from services.log.pull import Ended, Pull, position
from services.log.stored import Stored
from services.log.streams import LogMissing

TRIES = 3
"""Consumers in a row that may be lost without a message of theirs."""
GET_TIMEOUT_SECONDS = 3.0
_NOT_FOUND = "404"


class Bounds(Struct, frozen=True):
    """What LOG holds. Times in seconds since 1970, by the server's clock."""

    first: int
    """Its first sequence; `last` + 1 while it is empty."""
    last: int
    first_stamp: float
    """0.0 while it is empty."""
    last_stamp: float


class _State(Struct, frozen=True):
    messages: int
    first_seq: int
    last_seq: int
    first_ts: str
    last_ts: str


class _Info(Struct, frozen=True):
    state: _State


async def bounds(connection: Connection) -> Bounds:
    """LOG's ends now. Raises LogMissing, Unavailable."""
    try:
        verb = f"STREAM.INFO.{subjects.LOG}"
        found = (await api.call(connection, verb, None, _Info)).state
    except ApiError as error:
        raise _meant(error) from error
    if not found.messages:
        return Bounds(found.last_seq + 1, found.last_seq, 0.0, 0.0)
    return Bounds(
        found.first_seq,
        found.last_seq,
        codec.seconds(found.first_ts),
        codec.seconds(found.last_ts),
    )


async def read_range(
    connection: Connection, first: int, last: int | None = None, patterns: Sequence[str] = ()
) -> AsyncGenerator[list[Stored]]:
    """LOG from `first` to `last` in order, and no further than its end when this was called.

    `patterns`: only log subjects that one of them matches; none may match what another one does.
    """
    head = (await bounds(connection)).last
    end = head if last is None else min(last, head)
    tries = 0
    while first <= end:
        try:
            async with Pull(connection, subjects.LOG, _config(first, patterns)) as pull:
                while pull.pending and first <= end:
                    taken = await _taken(pull)
                    first, tries = taken[-1].sequence + 1, 0
                    if wanted := [stored for stored in taken if stored.sequence <= end]:
                        yield wanted
                return
        except ApiError as error:
            raise _meant(error) from error
        except Ended as error:
            tries += 1
            if tries == TRIES:
                raise Unavailable(f"LOG was not read to {end}: {error}") from error


async def _taken(pull: Pull) -> list[Stored]:
    """At least one message. Raises Ended."""
    messages = await pull.take()
    if not messages:
        raise Ended(f"{pull.pending} messages should be there and do not come")
    return [_stored(message) for message in messages]


def _config(first: int, patterns: Sequence[str]) -> dict[str, Any]:
    config = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(first, 1)}
    return config | {"filter_subjects": list(patterns)} if patterns else config


def _stored(message: Message) -> Stored:
    at = position(message.reply)
    return Stored(at.sequence, message.subject, message.payload, at.stamp)


def _meant(error: ApiError) -> Exception:
    if error.code == api.STREAM_NOT_FOUND:
        return LogMissing()
    return Unavailable(f"{subjects.LOG}: {error}")


async def sequence_at(connection: Connection, seconds: float) -> int:
    """The last LOG sequence stored at or before a time, to the microsecond.

    A time before LOG's first message gives the sequence before that one: compare with `bounds`.
    """
    after = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=1)
    body = {"start_time": after.isoformat(), "batch": 1, "next_by_subj": ">"}
    verb = f"$JS.API.DIRECT.GET.{subjects.LOG}"
    head = (await bounds(connection)).last
    answer = await connection.request(verb, codec.encode(body), GET_TIMEOUT_SECONDS)
    match status(answer):
        case "":
            return int(answer.headers["Nats-Sequence"]) - 1
        case code if code == _NOT_FOUND:
            return head
        case code:
            raise Unavailable(f"{verb}: {code} {answer.headers.get('Description', '')}")


async def message_at(connection: Connection, sequence: int) -> Stored | None:
    """One message of LOG; None: LOG does not hold it."""
    verb = f"$JS.API.DIRECT.GET.{subjects.LOG}"
    answer = await connection.request(verb, codec.encode({"seq": sequence}), GET_TIMEOUT_SECONDS)
    match status(answer):
        case "":
            headers = answer.headers
            stamp = codec.seconds(headers["Nats-Time-Stamp"])
            return Stored(sequence, headers["Nats-Subject"], answer.payload, stamp)
        case code if code == _NOT_FOUND:
            return None
        case code:
            raise Unavailable(f"{verb}: {code} {answer.headers.get('Description', '')}")
