"""Events written again as they were, into a LOG that nobody else writes to: see `streams.shut_log`.

Each batch is atomic and expects LOG to end where the previous one left it: so a batch lands once and in
its place, or not at all.

How it fails:
- The ack is lost: LOG's end says whether the batch landed; if not, it goes again.
- Another has written: NotAlone. What was written before stands.
- NATS stays away: Unavailable after a minute. The server refuses for good: ApiError.
"""

import asyncio
import secrets
from collections.abc import Sequence

from schemas import subjects
from services.log import api
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.guarded import ACK_SECONDS
from services.log.history import bounds
from services.log.message import Unavailable
from services.log.stored import Stored

MAX_BATCH = 500
MAX_BATCH_BYTES = 8 * 1024 * 1024
PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.2


class NotAlone(Exception):
    """LOG does not end where this writer left it."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"LOG ends at {found}, not at {expected}")
        self.expected = expected
        self.found = found


async def restore(
    connection: Connection, events: Sequence[Stored], root: str = subjects.LOG_ROOT
) -> None:
    """Write up to 500 events, whose sequences follow on LOG's last one.

    `root`: the beginning of the subjects that LOG listens to now.
    """
    before, last = events[0].sequence - 1, events[-1].sequence
    clock = asyncio.get_running_loop().time
    give_up = clock() + PATIENCE_SECONDS
    while True:
        try:
            end = (await bounds(connection)).last
            if end == last:
                return
            if end != before:
                raise NotAlone(before, end)
            await _send(connection, events, before, root)
        except Unavailable:
            if clock() > give_up:
                raise
            await asyncio.sleep(RETRY_SECONDS)


async def _send(connection: Connection, events: Sequence[Stored], before: int, root: str) -> None:
    """Only the last message is answered; it commits."""
    sent_to = [root + event.subject.removeprefix(subjects.LOG_ROOT) for event in events]
    batch = secrets.token_hex(8)
    for number, (event, subject) in enumerate(zip(events[:-1], sent_to, strict=False), 1):
        headers = _headers(batch, number, before)
        if not await connection.publish(subject, event.payload, headers=headers):
            raise Unavailable("connection to NATS lost within a batch")
    headers = _headers(batch, len(events), before) | {"Nats-Batch-Commit": "1"}
    last = events[-1]
    reply = await connection.request(sent_to[-1], last.payload, ACK_SECONDS, headers)
    ack = api.pub_ack(reply)
    match ack.code:
        case 0:
            return
        case api.WRONG_LAST_SEQUENCE | api.BATCH_INCOMPLETE | api.ANOTHER_IN_FLIGHT:
            raise Unavailable(ack.description)  # LOG's end says what became of it.
        case code:
            raise ApiError(code, ack.description)


def _headers(batch: str, number: int, before: int) -> dict[str, str]:
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    return headers | {"Nats-Expected-Last-Sequence": str(before)} if number == 1 else headers
