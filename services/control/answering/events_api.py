"""Events of the log, part by part: what an answer holds, and how a follower waits for more. Shell.

An answer says where the next one begins, so that a follower, over any break, misses nothing and is
told nothing twice. No answer reads more than it may: a part in which nothing concerns the asker is an
empty answer with another beginning.
"""

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import get_args

from msgspec import Struct

from schemas import codec
from schemas.documents import CatalogPointer
from schemas.history import (
    LONGEST_WAIT_SECONDS,
    MOST_EVENTS,
    EventList,
    EventRow,
    TargetKind,
)
from schemas.ids import ModelName
from services.control.answering.past import BadQuery, PastFleet, number_of, target_of
from services.control.answering.ranges import range_of
from services.control.answering.why_api import walked
from services.control.loop import Loop
from services.fleet.telling.concerns import Target, concerns, patterns
from services.fleet.telling.event_rows import event_row
from services.fleet.telling.happened import Happened, happened
from services.fleet.telling.summaries import label
from services.fleet.telling.swaps import touches
from services.log.finding import Finder
from services.log.history import bounds, read_range
from services.log.stored import Stored

USUAL_EVENTS = 100
"""The last ones, told where nothing says from when on."""
PART = 2000
"""Messages of one read."""
READ_SECONDS = 1.0
"""After which an answer holds what was found by then."""
LARGEST_ANSWER = 2 << 20
"""Bytes of documents, about."""
POLL_SECONDS = 0.1


class Asked(Struct, frozen=True):
    """A request for events."""

    target: Target | None
    type: str
    """Only labels that begin so."""
    limit: int
    wait_seconds: float


class Events:
    """Answers of one control."""

    def __init__(self, loop: Loop, past: PastFleet) -> None:
        self._loop = loop
        self._past = past

    async def answer(self, query: Mapping[str, str]) -> EventList:
        """Raises BadQuery for a query that cannot be read, Outside, Unavailable, LogMissing, Busy."""
        asked = _asked(query)
        connection = self._loop.connection
        kept = await bounds(connection)
        usual = None if asked.target or asked.type else min(USUAL_EVENTS, asked.limit)
        found = await range_of(connection, query, kept, self._loop.now(), usual)
        first, last = found.first, found.last
        ends = monotonic() + asked.wait_seconds
        while True:
            if await self._is_there(first, last, ends):
                kept = await bounds(self._loop.connection)
            told = await self._read(asked, first, kept.last if last is None else last)
            if told.items or last is not None or monotonic() >= ends:
                return told
            first = told.next_seq

    async def _is_there(self, first: int, last: int | None, ends: float) -> bool:
        """Whether there is something from `first` on, after waiting for it."""
        while self._loop.state.sequence < first:
            if last is not None or monotonic() >= ends:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _read(self, asked: Asked, first: int, last: int) -> EventList:
        kept = await bounds(self._loop.connection)
        end = min(last, kept.last)
        items: list[EventRow] = []
        size, gives_up = 0, monotonic() + READ_SECONDS
        start = max(first, kept.first)
        finder = Finder(self._loop.connection, end)
        async with self._past.turn():
            while start <= end and size < LARGEST_ANSWER and monotonic() < gives_up:
                stop = min(end, start + PART - 1)
                rows = await self._part(asked, start, stop, finder)
                for row in rows[: asked.limit - len(items)]:
                    items.append(row)
                    size += row.detail_bytes
                start = stop + 1
                if len(items) >= asked.limit:
                    start = items[-1].seq + 1
                    break
        return EventList(
            as_of_seq=kept.last,
            items=tuple(items),
            next_seq=start,
            end_seq=end,
            kept_from_seq=kept.first,
            kept_from=codec.rfc3339(kept.first_stamp) if kept.first_stamp else "",
        )

    async def _part(self, asked: Asked, first: int, last: int, finder: Finder) -> list[EventRow]:
        only = () if asked.target is None else patterns(asked.target)
        rows: list[EventRow] = []
        async for batch in read_range(self._loop.connection, first, last, only):
            for found, row in await asyncio.to_thread(_told, batch, asked):
                if asked.target is None or await _touches(found, asked.target, finder):
                    rows.append(row)
        return rows


def _told(batch: Sequence[Stored], asked: Asked) -> list[tuple[Happened, EventRow]]:
    """What is asked for; swaps of the catalog are looked at further."""
    found = (happened(each.sequence, each.subject, each.payload, each.stamp) for each in batch)
    return [(each, event_row(each)) for each in found if _is_asked_for(each, asked)]


def _is_asked_for(found: Happened, asked: Asked) -> bool:
    if not any(each.startswith(asked.type) for each in _labels(found)):
        return False
    target = asked.target
    return target is None or _is_swap(found, target) or concerns(found, target)


def _is_swap(found: Happened, target: Target) -> bool:
    return target.kind == "model" and isinstance(found.document, CatalogPointer)


def _labels(found: Happened) -> Sequence[str]:
    """As it is shown; and as its writer named it, also where what it wrote cannot be read."""
    return (label(found),) if found.event is None else (label(found), found.event.type)


async def _touches(found: Happened, target: Target, finder: Finder) -> bool:
    """Of a swap, whether it changed the model."""
    if not _is_swap(found, target):
        return True
    return await walked(touches(found, ModelName(target.name)), finder)


def _asked(query: Mapping[str, str]) -> Asked:
    limit = number_of("limit", query.get("limit", str(MOST_EVENTS)))
    if limit < 1:
        raise BadQuery("limit is 1 at least")
    return Asked(
        target=None if "for" not in query else _target(query["for"]),
        type=query.get("type", ""),
        limit=min(MOST_EVENTS, limit),
        wait_seconds=min(LONGEST_WAIT_SECONDS, float(number_of("wait", query.get("wait", "0")))),
    )


def _target(text: str) -> Target:
    kind, _, name = text.partition("/")
    for known in get_args(TargetKind):
        if known == kind and name:
            return target_of(known, name)
    raise BadQuery(f"`{text}` is not one of {', '.join(f'{k}/NAME' for k in get_args(TargetKind))}")
