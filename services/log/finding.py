"""One event of LOG by its id: ids are not indexed, but they say where to look.

The id of a control's decision holds the sequence it had seen: the event stands just above it. Others
hold the time they were made at, by a clock that may be wrong. What causes something mostly stands
close to it. Where none of that leads to it, all of some subjects is read, if the caller knows which.

What is read is decoded beside the event loop: documents of a large fleet are large.

How it fails: as `history` does. An event that is not kept any more is not found.
"""

import asyncio
import re
from collections.abc import Sequence

from services.fleet.telling.happened import Happened, happened
from services.log.connect import Connection
from services.log.event_ids import made_at
from services.log.history import read_range, sequence_at
from services.log.stored import Stored

NEAR = 50
"""Messages before and after the one that names it."""
PART = 500
"""Messages of one read."""
MOST_MESSAGES = 20_000
"""Looked through for one event."""
CLOCK_SECONDS = 5.0
"""How far the clock of an id's maker may be ahead of the server's."""

_DECIDED = re.compile(r"[0-9]+-([0-9]+)-[0-9]+")


class Finder:
    """Reads LOG up to `last`, and remembers what it has read: one for each question."""

    def __init__(self, connection: Connection, last: int) -> None:
        self._connection = connection
        self._last = last
        self._known: dict[str, Happened] = {}
        self._pasts: dict[tuple[str, ...], list[Happened]] = {}

    async def past(self, subjects: tuple[str, ...]) -> list[Happened]:
        """All that LOG keeps of these subjects."""
        if subjects not in self._pasts:
            self._pasts[subjects] = await self._read(1, self._last, subjects)
        return self._pasts[subjects]

    async def find(self, event: str, near: int, hints: Sequence[str] = ()) -> Happened | None:
        """`near`: sequence of an event that names it. `hints`: subjects that may hold it."""
        if event in self._known:
            return self._known[event]
        found = await self._look(event, near - NEAR, near + NEAR) or await self._by_id(event)
        if found is None and hints:
            await self.past(tuple(hints))
            found = self._known.get(event)
        return found

    async def _by_id(self, event: str) -> Happened | None:
        if decided := _DECIDED.fullmatch(event):
            seen = int(decided[1])
            return await self._look(event, seen + 1, seen + MOST_MESSAGES)
        made = made_at(event)
        if made is None:
            return None
        first = await sequence_at(self._connection, made - CLOCK_SECONDS) + 1
        return await self._look(event, first, first + MOST_MESSAGES)

    async def _look(self, event: str, first: int, last: int) -> Happened | None:
        """Part by part, so that what stands close is found by a short read."""
        for start in range(max(1, first), min(last, self._last) + 1, PART):
            await self._read(start, min(start + PART - 1, last, self._last))
            if event in self._known:
                return self._known[event]
        return None

    async def _read(self, first: int, last: int, subjects: Sequence[str] = ()) -> list[Happened]:
        found: list[Happened] = []
        async for batch in read_range(self._connection, first, last, subjects):
            found += await asyncio.to_thread(_happened, batch)
        for each in found:
            if each.id is not None:
                self._known.setdefault(each.id, each)
        return found


def _happened(batch: Sequence[Stored]) -> list[Happened]:
    return [happened(each.sequence, each.subject, each.payload, each.stamp) for each in batch]
