"""The past, for those who ask this control: which moment is meant, and the fleet as it was then. Shell.

One question at a time, so that no number of them takes the leader's time; who waits too long for its
turn is told so (Busy). Folding pauses for the loop, and what is computed from a state of the past is
computed in a thread: nobody else has that state.

How it fails: NATS away, or no answer: Unavailable. Outside what is kept: Outside, with from when on.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from schemas import codec
from schemas.history import TargetKind
from schemas.ids import LogId, parse_replica
from services.fleet.state import FleetState
from services.fleet.telling import moments
from services.fleet.telling.concerns import Target
from services.log.connect import Connection
from services.log.history import Bounds, bounds, message_at, sequence_at
from services.log.state_at import NotKept, state_at

TURN_SECONDS = 10.0
"""A question waits so long for those before it."""
AHEAD_SECONDS = 60.0
"""How far the asker's clock may be ahead of the fleet's: `now` is a moment, too."""


class Busy(Exception):
    """Others ask for the past, too."""


class BadQuery(Exception):
    """Part of a request that cannot be read."""


class Outside(Exception):
    """Not a moment of what is kept: before its beginning, or yet to come."""

    def __init__(self, code: str, message: str, why: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.why = why


class Then(Struct, frozen=True):
    """A moment of the log."""

    sequence: int
    """The last one that had been stored by then."""
    seconds: float
    """Since 1970. 0.0: only a checkpoint holds it, and not when it was stored."""


class PastFleet:
    """`state` within `turn`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._last: tuple[int, float, FleetState] | None = None
        """The state asked for last: its sequence, and when that was stored, which tells logs apart."""

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Alone with the past. Raises Busy."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._lock.acquire()
        except TimeoutError:
            raise Busy from None
        try:
            yield
        finally:
            self._lock.release()

    async def then(self, text: str, now: float) -> Then:
        """A sequence, or an RFC 3339 time. Raises BadQuery, Outside."""
        kept = await bounds(self._connection)
        sequence = moments.sequence(text)
        if sequence is not None:
            must_be_there(sequence, kept.last, kept)
            return Then(sequence, await self._stamp(sequence))
        seconds = time_that_has_come(text, kept, now)
        then = min(seconds, max(now, kept.last_stamp))
        return Then(await sequence_at(self._connection, seconds), then)

    async def _stamp(self, sequence: int) -> float:
        stored = await message_at(self._connection, sequence) if sequence > 0 else None
        return 0.0 if stored is None else stored.stamp

    async def state(self, then: Then) -> FleetState:
        """The fleet as it was; to be read only. Raises Outside."""
        stamp = await self._stamp(then.sequence)
        if self._last is not None and stamp and self._last[:2] == (then.sequence, stamp):
            return self._last[2]
        found = await state_at(self._connection, then.sequence)
        if isinstance(found, NotKept):
            raise outside(found.first, found.first_stamp, found.parent)
        self._last = (then.sequence, stamp, found)
        return found


def time_of(text: str) -> float:
    """Raises BadQuery."""
    seconds = moments.rfc3339_seconds(text)
    if seconds is None:
        what = "neither a sequence nor an RFC 3339 time of the years 1970 to 9998"
        raise BadQuery(f"`{text[:40]}` is {what}")
    return seconds


def time_that_has_come(text: str, kept: Bounds, now: float) -> float:
    """Raises BadQuery, Outside. `now`: the fleet's clock."""
    seconds = time_of(text)
    if seconds > max(now, kept.last_stamp) + AHEAD_SECONDS:
        raise Outside("not_yet", f"{text} is yet to come", _ends(kept))
    return seconds


def must_be_there(sequence: int, most: int, kept: Bounds) -> None:
    """Raises Outside: it is beyond `most`."""
    if sequence > most:
        raise Outside("not_yet", f"sequence {sequence:,} is yet to come", _ends(kept))


def number_of(name: str, text: str) -> int:
    """Raises BadQuery."""
    number = moments.sequence(text)
    if number is None:
        raise BadQuery(f"{name}: `{text[:40]}` is not a number")
    return number


def target_of(kind: TargetKind, name: str) -> Target:
    """Raises BadQuery: nothing can have that name."""
    if kind == "replica" and parse_replica(name) is None:
        raise BadQuery(f"`{name[:80]}` is no replica's id: those are MODEL-SLOT-GENERATION")
    return Target(kind, name)


def outside(first: int, stamp: float, parent: LogId | None = None) -> Outside:
    """Before what is kept. `stamp` 0.0: it is not known when that was. `parent`: NotKept has it."""
    since = f"{codec.rfc3339(stamp)}, " if stamp else ""
    why = f"kept from {since}sequence {first:,}"
    if parent is not None:
        why += f": a recovery began this log there, and log {parent} before it is lost"
    return Outside("not_kept", "that is not kept", why)


def _ends(kept: Bounds) -> str:
    if not kept.last_stamp:
        return "the log is empty"
    return f"the log ends at sequence {kept.last:,}, {codec.rfc3339(kept.last_stamp)}"
