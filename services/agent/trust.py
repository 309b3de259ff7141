"""Whether the log found is the one followed before. While it is not, nothing of it is acted on.

Looks at every new link to NATS and every few seconds, and keeps (log id, highest sequence) on disk.
How it fails: NATS away, or an answer that does not come, changes nothing; it looks again.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
from msgspec import DecodeError

from schemas import codec, subjects
from schemas.documents import Genesis
from schemas.ids import LogId
from services.fleet.damage import Seen, damage, read_seen
from services.log import streams
from services.log.connect import Connection, Unavailable
from services.log.snapshot import get
from services.runtime.files import read_if_there, write_atomically

log = structlog.get_logger()

LOOK_SECONDS = 15.0
DAMAGED_LOOK_SECONDS = 5.0
FIRST_LOOK_SECONDS = 0.25
"""Until a log was found."""


class Trust:
    """`log_id` is the log that may be acted on; None: none, or not now."""

    def __init__(self, connection: Connection, path: Path, changed: Callable[[], None]) -> None:
        """`changed` is called when `log_id` has another value."""
        self._connection = connection
        self._path = path
        self._changed = changed
        self._look = asyncio.Event()
        self.seen: Seen | None = read_seen(read_if_there(path))
        self._saved = self.seen
        self.log_id: LogId | None = None
        self.damage = ""
        """Why the log found is not acted on. Empty: it is, or none was found yet."""

    def note(self, sequence: int) -> None:
        """LOG has been seen this far."""
        if self.seen is not None and sequence > self.seen.highest:
            self.seen = Seen(self.seen.log, sequence)

    def look_again(self) -> None:
        """Something came that another log may have sent."""
        self._look.set()

    async def run(self) -> None:
        """Look, for ever."""
        self._connection.on_change.append(self._linked)
        while True:
            await self._check()
            await asyncio.to_thread(self._save)
            try:
                async with asyncio.timeout(self._pause()):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()

    def _pause(self) -> float:
        if self.damage:
            return DAMAGED_LOOK_SECONDS
        return FIRST_LOOK_SECONDS if self.log_id is None else LOOK_SECONDS

    def _linked(self, up: bool) -> None:
        if up:
            self._look.set()

    async def _check(self) -> None:
        try:
            found, head = await self._found()
        except Unavailable:
            return
        if found is None and self.seen is None:
            return
        reason = damage(self.seen, found, head) or ""
        if found is not None and not reason:
            self._take(found.log_id, head)
        if reason != self.damage:
            self._tell(reason)
        known = found.log_id if found is not None and not reason else None
        if known != self.log_id:
            self.log_id = known
            self._changed()

    async def _found(self) -> tuple[Genesis | None, int]:
        try:
            head = await streams.head(self._connection)
        except streams.LogMissing:
            return None, 0
        stored = await get(self._connection, subjects.GENESIS)
        if stored is None:
            return None, head
        try:
            event = codec.decode_event(stored.payload)
            return codec.decode(event.data, Genesis), head
        except DecodeError:
            return None, head

    def _take(self, found: LogId, head: int) -> None:
        if self.seen is None or self.seen.log != found:
            self.seen = Seen(found, head)
            log.info("log.followed", log_id=found, head=head)
        else:
            self.note(head)

    def _tell(self, reason: str) -> None:
        self.damage = reason
        if reason:
            log.error("log.damaged", reason=reason)
        else:
            log.info("log.mended")

    def _save(self) -> None:
        if self.seen is not None and self.seen != self._saved:
            write_atomically(self._path, codec.encode(self.seen))
            self._saved = self.seen
