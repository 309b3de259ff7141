"""LOG from a sequence on, every message once and in order, for as long as the program lives.

How it fails:
- The link is lost, the consumer is deleted or falls silent, a message is missing: another consumer is
  made from the last message handed over, plus one.
- NATS away: it waits.
- LOG ends below what was handed over, or is not there: LogRewound, LogMissing. It is not the log that
  was read before; only the program can say what then.
- LOG's age has removed what comes next: it goes on with LOG's first message. Who reads STATE first
  never meets that.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import structlog

from schemas import subjects
from services.log import api, streams
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Message, Unavailable
from services.log.pull import Ended, Pull, position
from services.log.stored import Stored
from services.log.streams import LogRewound

log = structlog.get_logger()

REBUILD_SECONDS = 0.2


class Tail:
    """Read by one task through `batches`."""

    def __init__(self, connection: Connection, after: int, filter: str | None = None) -> None:  # noqa: A002
        self.sequence = after
        """LOG sequence up to which all has been handed over."""
        self.pending = 0
        """Messages known to come after that, as far as the server has said."""
        self.caught_up = asyncio.Event()
        """Set once its reader has had all that LOG held at some moment since it began."""
        self.rebuilds = 0
        """How often a consumer was given up for another."""
        self._connection = connection
        self._filter = filter

    async def batches(self) -> AsyncIterator[list[Stored]]:
        """What is stored after `sequence`, at least one message each time. Ends only by LogDamaged."""
        while True:
            try:
                async with Pull(self._connection, subjects.LOG, self._config()) as pull:
                    await self._check_head()
                    self._is_left(pull.pending)
                    while True:
                        messages = await pull.take()
                        if messages:
                            batch = [_stored(message) for message in messages]
                            self.sequence = batch[-1].sequence
                            yield batch
                            self._is_left(pull.pending)
            except (Ended, Unavailable, ApiError) as error:
                await self._rebuild(error)

    def _is_left(self, pending: int) -> None:
        self.pending = pending
        if pending == 0:
            self.caught_up.set()

    def _config(self) -> dict[str, Any]:
        config = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.sequence + 1}
        return config if self._filter is None else config | {"filter_subject": self._filter}

    async def _check_head(self) -> None:
        head = await streams.head(self._connection)
        if head < self.sequence:
            raise LogRewound(head, self.sequence)

    async def _rebuild(self, error: Exception) -> None:
        if isinstance(error, ApiError) and error.code == api.STREAM_NOT_FOUND:
            raise streams.LogMissing from error
        self.rebuilds += 1
        log.info("log.tail.rebuilt", after=self.sequence, reason=str(error))
        await asyncio.sleep(REBUILD_SECONDS)
        await self._connection.wait_connected()


def _stored(message: Message) -> Stored:
    at = position(message.reply)
    return Stored(at.sequence, message.subject, message.payload, at.stamp)
