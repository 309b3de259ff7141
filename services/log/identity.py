"""Whether the log found is the one followed before. While it is not, nothing of it is acted on.

`look` asks once; `Trust` keeps asking, for a program that follows the log: over every new link, when
something does not fit, and every few seconds. What counts as damage is in `services.fleet.damage`.

How it fails: NATS away, or an answer that does not come, changes nothing; it is asked again.
"""

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import Genesis
from schemas.ids import LogId
from services.fleet.damage import Found, Seen, damage
from services.fleet.reading import Read, read
from services.log import streams
from services.log.connect import Connection
from services.log.history import message_at
from services.log.message import Unavailable
from services.log.snapshot import get, get_from_log

log = structlog.get_logger()

LOOK_SECONDS = 10.0
DAMAGED_LOOK_SECONDS = 5.0
RETRY_SECONDS = 0.25
"""While nobody could say over this link what log stands there."""


async def look(connection: Connection, seen: Seen | None = None) -> Found:
    """What stands there now, beside what had been seen when this was called. Raises Unavailable."""
    try:
        head = await streams.head(connection)
    except streams.LogDamaged as error:
        return Found(None, 0, missing=str(error), seen=seen)
    stored = await get_from_log(connection, subjects.GENESIS)
    at = 0 if stored is None else stored.sequence
    if stored is None:  # Never there, or aged away: then STATE has it.
        if not await streams.exists(connection):
            return Found(None, head, missing=f"stream {subjects.STATE} is gone", seen=seen)
        stored = await get(connection, subjects.GENESIS)
    if stored is None:
        return Found(None, head, seen=seen)
    match read(stored.subject, stored.payload, Genesis):
        case Read(document=genesis):
            stamp = await _stamp(connection, seen)
            return Found(genesis, head, seen=seen, stamp=stamp, genesis_at=at)
        case other:
            return Found(None, head, unreadable=other.reason, seen=seen, genesis_at=at)


async def _stamp(connection: Connection, seen: Seen | None) -> float:
    """Asked only by who knows when its newest message was stored: control, which may read all of LOG."""
    if seen is None or not seen.stamp:
        return 0.0
    found = await message_at(connection, seen.highest)
    return 0.0 if found is None else found.stamp


class Trust:
    """`log_id` is the log that may be acted on; None: none, or not now."""

    def __init__(
        self, connection: Connection, seen: Seen | None, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when there is another log, damage, or a link over which it was asked."""
        self.seen = seen
        """To be kept on disk by its owner."""
        self.log_id: LogId | None = None
        self.damage = ""
        """Why the log found is not acted on. Empty: it is, or none was found yet."""
        self._connection = connection
        self._changed = changed
        self._link = 0
        self._call = asyncio.Event()

    @property
    def fresh(self) -> bool:
        """`log_id` was found over the link that stands now."""
        return self.log_id is not None and self._link == self._connection.generation

    def note(self, sequence: int) -> None:
        """LOG has been seen this far."""
        if self.seen is not None and sequence > self.seen.highest:
            self.seen = replace(self.seen, highest=sequence)

    def obeyed(self, sequence: int) -> None:
        """An assignment of the log was."""
        self.note(sequence)
        if self.seen is not None:
            self.seen = replace(self.seen, obeyed=sequence)

    def look_again(self) -> None:
        """Something came that another log may have sent."""
        self._call.set()

    async def run(self) -> None:
        """Look, for ever."""
        self._connection.on_change.append(self._linked)
        while True:
            await self._check()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._call.wait()
            except TimeoutError:
                pass
            self._call.clear()

    def _linked(self, up: bool) -> None:
        if up:
            self._call.set()

    def _pause(self) -> float:
        if self.damage:
            return DAMAGED_LOOK_SECONDS
        return LOOK_SECONDS if self.fresh else RETRY_SECONDS

    async def _check(self) -> None:
        link = self._connection.generation
        try:
            found = await look(self._connection, self.seen)
        except Unavailable:
            return
        before = (self.log_id, self.damage, self._link)
        if reason := damage(found):
            self._distrust(reason)
        elif found.genesis is not None:
            self._take(found.genesis.log_id, found.head, link)
        if (self.log_id, self.damage, self._link) != before:
            self._changed()

    def _distrust(self, reason: str) -> None:
        if reason != self.damage:
            log.error("log.damaged", reason=reason)
        self.log_id, self.damage = None, reason

    def _take(self, found: LogId, head: int, link: int) -> None:
        if self.damage:
            log.info("log.mended", log_id=found)
        if self.seen is None or self.seen.log != found:
            self.seen = Seen(found, head)
            log.info("log.followed", log_id=found, head=head)
        else:
            self.note(head)
        self.log_id, self.damage, self._link = found, "", link
