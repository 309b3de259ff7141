"""How control writes: atomic batches that the server refuses once another control leads.

Every batch is guarded on its first message by the sequence of the epoch document, the fence. One
batch is in flight at a time, and nobody acts on it before `append` has returned Appended.

How it fails:
- Another control has claimed: Fenced. Nothing of this batch stands in the log.
- The ack is lost, or the server dies: the outcome is not known. The log is asked whether the last
  event stands there, from the fence on: the next leader may have written over it. If not, the batch
  goes again with the same event ids under a new batch id, and the server refuses what it has already.
  So it lands once, also when hours lie between.
- A part of the batch is lost on the way: the server drops it whole, and it goes again.
- NATS stays away, or answers no write (its disk is full): Unavailable after a minute; the same events
  may be given `again`.
- The server refuses for another reason: ApiError; NATS denies the subject: Denied. Nothing written.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec import Struct

from schemas import subjects
from services.log import api
from services.log.api import ApiError, PubAck
from services.log.connect import Connection
from services.log.guarded import (
    ACK_SECONDS,
    Refused,
    Sealed,
    Written,
    carries,
    check,
    expect,
    write,
)
from services.log.history import read_range
from services.log.message import Denied, Unavailable
from services.log.snapshot import get_from_log
from services.log.streams import LogMissing

__all__ = ["Appended", "Fenced", "Sealed", "append", "claim"]

T = TypeVar("T")

MAX_BATCH = 500
RETRY_SECONDS = 0.1
PATIENCE_SECONDS = 60.0


class Appended(Struct, frozen=True):
    """The whole batch stands in the log."""

    sequence: int
    """LOG sequence of its last event."""


class Fenced(Struct, frozen=True):
    """Another control leads. Stop deciding, follow."""

    reason: str


async def append(
    connection: Connection,
    events: Sequence[Sealed],
    fence: int,
    patience_seconds: float = PATIENCE_SECONDS,
    *,
    again: bool = False,
) -> Appended | Fenced:
    """Write 1 to 500 events, all or none, if `fence` is still the epoch document's sequence.

    `again`: the same events were given before, and what became of them was not known.
    """
    if not 1 <= len(events) <= MAX_BATCH:
        raise ValueError(f"a batch has 1 to {MAX_BATCH} events, not {len(events)}")
    for event in events:
        check(event)

    async def attempt(number: int) -> Appended | Fenced:
        first = not (number or again)
        landed = None if first else await _landed(connection, events[-1], fence)
        outcome = landed or await _try(connection, events, fence)
        if first or isinstance(outcome, Appended):
            return outcome
        return await _landed(connection, events[-1], fence) or outcome  # From now on none lands.

    return await _persist(attempt, patience_seconds)


async def claim(
    connection: Connection,
    epoch: Sealed,
    expected: int,
    patience_seconds: float = PATIENCE_SECONDS,
) -> int | None:
    """Write the epoch document if the last one has sequence `expected`, 0 for none.

    Returns its own sequence, which is the fence; None: another has claimed.
    """
    check(epoch)

    async def attempt(_: int) -> Written | Refused:
        return await write(connection, epoch, expected)

    outcome = await _persist(attempt, patience_seconds)
    return outcome.sequence if isinstance(outcome, Written) else None


async def _persist(attempt: Callable[[int], Awaitable[T]], patience_seconds: float) -> T:
    """Until the outcome is known. An attempt that is not the first may follow one that landed."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience_seconds
    for number in itertools.count():
        try:
            return await attempt(number)
        except Denied:
            raise  # Known: it had no effect, and waiting gives no rights.
        except Unavailable as error:
            if clock() > give_up:
                raise Unavailable(f"the outcome of a write is not known: {error}") from error
        await asyncio.sleep(RETRY_SECONDS)
    raise AssertionError


async def _landed(connection: Connection, last: Sealed, fence: int) -> Appended | None:
    """Whether an earlier attempt stands in the log, where the next leader may have written over it."""
    found = await get_from_log(connection, last.subject)
    if found is not None and carries(found, last.id):
        return Appended(found.sequence)
    try:
        async with aclosing(read_range(connection, fence + 1, patterns=(last.subject,))) as batches:
            async for batch in batches:
                for each in batch:
                    if carries(each, last.id):
                        return Appended(each.sequence)
    except LogMissing as error:
        raise Unavailable("there is no LOG to look into") from error
    return None


async def _try(connection: Connection, events: Sequence[Sealed], fence: int) -> Appended | Fenced:
    ack = await _send(connection, events, fence)
    match ack.code:
        case 0:
            return Appended(ack.seq)
        case api.WRONG_LAST_SEQUENCE:
            return Fenced(ack.description)
        case api.BATCH_DUPLICATE | api.BATCH_INCOMPLETE | api.ANOTHER_IN_FLIGHT | api.IN_PROCESS:
            raise Unavailable(ack.description)  # The next attempt looks first whether it landed.
        case code:
            raise ApiError(code, ack.description)


async def _send(connection: Connection, events: Sequence[Sealed], fence: int) -> PubAck:
    """Only the last message is answered; it commits."""
    batch = secrets.token_hex(8)
    *before, last = events
    for number, event in enumerate(before, 1):
        headers = _headers(batch, number, event, fence)
        if not await connection.publish(event.subject, event.payload, headers=headers):
            raise Unavailable("connection to NATS lost within a batch")
    headers = _headers(batch, len(events), last, fence) | {"Nats-Batch-Commit": "1"}
    return api.pub_ack(await connection.request(last.subject, last.payload, ACK_SECONDS, headers))


def _headers(batch: str, number: int, event: Sealed, fence: int) -> dict[str, str]:
    headers = {
        "Nats-Batch-Id": batch,
        "Nats-Batch-Sequence": str(number),
        "Nats-Msg-Id": event.id,
    }
    if number == 1:
        headers |= expect(fence)
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = subjects.CONTROL_EPOCH
    return headers
