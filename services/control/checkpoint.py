"""The leader's dump of the state, for time travel and repair: daily, and earlier when much has happened.

It is written beside the turns: what takes long is done in a thread or in small pieces. When the last
one was, the stream says; so a takeover neither forgets nor repeats one.

How it fails: NATS away, or the server refuses: said, and tried again later. Half a dump is never read.
"""

import asyncio
from collections.abc import Callable

import structlog

from schemas import codec
from services.fleet.state import FleetState
from services.log import checkpoint
from services.log.api import ApiError
from services.log.checkpoint import Checkpoint
from services.log.connect import Connection
from services.log.documents import read_documents
from services.log.message import Unavailable

LOOK_SECONDS = 60.0
RETRY_SECONDS = 600.0
"""After a failure: what was written of it stays until its age takes it."""
EVERY_SECONDS = 24 * 3600.0
EVERY_EVENTS = 250_000
"""A look into the past folds at most so many: one to two seconds of work."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Checkpoints:
    """Of the log that is followed. `run` until cancelled."""

    def __init__(
        self,
        connection: Connection,
        state: Callable[[], FleetState],
        leading: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        """`now`: the fleet's clock, seconds since 1970."""
        self._connection = connection
        self._state = state
        self._leading = leading
        self._now = now

    async def run(self) -> None:
        """Look once a minute whether one is due."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._leading() and await self._due():
                    await self._write()
            except (Unavailable, ApiError) as error:
                log.warning("checkpoint.failed", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _due(self) -> bool:
        last = await checkpoint.newest(self._connection)
        if last is None or last.checkpoint.log != self._state().log_id:
            return True
        events = self._state().sequence - last.checkpoint.sequence
        return events >= EVERY_EVENTS or (events > 0 and self._now() - last.stamp >= EVERY_SECONDS)

    async def _write(self) -> None:
        about = await write(self._connection, self._now())
        log.info("checkpoint.written", sequence=about.sequence, documents=about.documents)


async def write(connection: Connection, now: float) -> Checkpoint:
    """Dump what STATE holds. Raises Unavailable, ApiError."""
    documents, state = await read_documents(connection)
    if state.log_id is None:
        raise Unavailable("STATE holds no genesis yet")
    in_force = [stored for stored in documents if stored.sequence >= state.began]
    at = codec.rfc3339(now)
    return await checkpoint.write(connection, state.log_id, state.sequence, at, in_force)
