"""Opens the log, and keeps an eye on it: is it the one that was here before? Shell.

Its streams are made only by a control that has never seen a log and hears of none, or where the log
stands already; a log that is gone is never made anew. STATE is, from a LOG that tells all of it. While
the log is damaged (`damage.py`), nothing is followed, and it is looked at again every two seconds.

How it fails: NATS away, or an answer that does not come: Unavailable, and the caller tries again.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Literal

import structlog
from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import Genesis
from schemas.ids import ControlId, EventId, LogId
from schemas.recovery import Damage
from services.control.damage import Claim, SeenFile, describe, doubted, judge
from services.control.ears import Ears
from services.control.leader import Leadership
from services.control.seal import Envelope
from services.fleet.damage import Found, Seen
from services.fleet.state import FleetState
from services.garbage import search_no_more_in_what_is_there, search_paused
from services.log import streams
from services.log.append import claim
from services.log.connect import Connection
from services.log.documents import read_current
from services.log.event_ids import new_event_id
from services.log.guarded import write
from services.log.history import bounds
from services.log.identity import look
from services.log.message import Unavailable
from services.log.rebuild import make_room, tells_all
from services.log.snapshot import get_from_log
from services.log.streams import LogMissing

FORMAT = 1
LISTEN_SECONDS = 1.5
"""Before a first log begins: whoever follows another one has said so, at a beat a second."""
SLACK_SECONDS = 2 * 24 * 3600.0
"""A leader writes at least once a day: what LOG's age takes ends so near its limit."""

Begun = Literal["begun", "changed", "led_by_another"]
"""`changed`: somebody else wrote a genesis meanwhile, and ours does not stand. `led_by_another`: ours
stands, and another control has claimed meanwhile."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Damaged(Exception):
    """The log must not be acted on; `Opener.damage` says why."""


class Opened(Struct, frozen=True):
    """The log, fit to be followed from `state.sequence` on."""

    state: FleetState
    head: int
    """LOG's end when it was opened: what lies below must be folded before anything is decided."""
    server_now: float
    """The server's clock, seconds since 1970."""


class Opener:
    """`damage` and `warnings` are for `status`."""

    def __init__(
        self,
        connection: Connection,
        control: ControlId,
        seen: SeenFile,
        ears: Ears,
        now: Callable[[], float],
        monitor: tuple[str, int] | None = None,
        replicas: int | None = None,
    ) -> None:
        self.damage: Damage | None = None
        self.warnings: tuple[str, ...] = ()
        self.past: tuple[str, ...] = ()
        """What is missing of the history, for `status` too."""
        self.doubted: tuple[Claim, ...] = ()
        """What others say of the log and is not believed; of a damaged one, what was not before."""
        self.last_read = FleetState()
        """What STATE held at the last try, damaged or not."""
        self.found: Found | None = None
        """What was judged at the last look."""
        self._connection = connection
        self._control = control
        self._seen = seen
        self._ears = ears
        self._now = now
        self._monitor = monitor
        self._replicas = replicas

    async def open(self) -> Opened:
        """One try; whoever takes the state over calls `mended`. Raises Damaged, or Unavailable."""
        seen, reports = self._seen.seen, self._ears.reports()
        await self._make(seen)
        state = self.last_read = await self._read_state()
        found = await look(self._connection, seen)
        self.doubted = doubted(found, state, state.sequence, reports, self.doubted)
        await self._judge(found, judge(found, state, state.sequence, reports))
        self.past = await self._purged(state)
        newest = await streams.newest(self._connection)
        if state.log_id is None and found.genesis is None:
            await self._write_genesis(newest.server_now, found.head)
        search_no_more_in_what_is_there()
        return Opened(state, found.head, newest.server_now)

    async def inspect(self, state: FleetState) -> None:
        """Of a log that is followed. Raises Damaged, or Unavailable."""
        seen, applied, reports = self._seen.seen, state.sequence, self._ears.reports()
        if not await streams.has(self._connection, subjects.STATE):
            await self._make_state(state)
        found = await look(self._connection, seen)
        self.doubted = doubted(found, state, applied, reports, self.doubted)
        await self._judge(found, judge(found, state, applied, reports))
        await self.mended()
        self.past = await self._purged(state)

    async def _make(self, seen: Seen | None) -> None:
        """The streams, where they may be made or put right. Raises Damaged."""
        has_log = await streams.has(self._connection, subjects.LOG)
        if not has_log and seen is not None:
            return
        if not has_log:
            await self._listen()
        is_new = not has_log or (seen is None and await self._is_empty())
        if not is_new and not await streams.has(self._connection, subjects.STATE):
            await self._make_state(FleetState())
        else:
            self.warnings = await self._create()

    async def _is_empty(self) -> bool:
        found = await bounds(self._connection)
        return found.first > found.last

    async def _create(self) -> tuple[str, ...]:
        return tuple(await streams.create(self._connection, self._replicas, self._monitor))

    async def _listen(self) -> None:
        """Whether somebody follows a log, though none is there and this control never saw one."""
        while (left := LISTEN_SECONDS - self._ears.hearing_seconds()) > 0:
            await asyncio.sleep(left)
            if not self._connection.connected:
                raise Unavailable("no connection to NATS")
        found = await look(self._connection)
        told = next(iter(sorted(self._ears.followed().items())), None)
        if found.missing and told is not None:
            await self._judge(found, f"{found.missing}; {told[0]} follows log {told[1]}")

    async def _make_state(self, state: FleetState) -> None:
        """It is gone; LOG may tell all that it held. Raises Damaged."""
        reports = self._ears.reports()
        found = await look(self._connection, self._seen.seen)
        reason = judge(found, state, state.sequence, reports)
        if reason is None and not await tells_all(self._connection):
            reason = f"stream {subjects.STATE} is gone, and LOG no longer tells all of it"
        await self._judge(found, reason)
        log.warning("state.made_anew", head=found.head)
        made = f"{subjects.STATE} was gone: it is made anew from LOG, and nothing is missing"
        self.warnings = (*await self._create(), made)

    async def _purged(self, state: FleetState) -> tuple[str, ...]:
        """What was taken out of LOG's beginning, though its age did not take it."""
        try:
            found = await bounds(self._connection)
        except LogMissing:
            return ()
        young = self._now() - found.first_stamp < streams.KEPT_SECONDS - SLACK_SECONDS
        if not 0 < state.began < found.first or (found.first_stamp and not young):
            return ()
        return (
            f"LOG begins at {found.first}: the history before it was purged; the state is whole",
        )

    async def _judge(self, found: Found, reason: str | None) -> None:
        self.found = found
        if reason is None:
            return
        if self.damage is None or self.damage.reason != reason:
            log.error("log.damaged", reason=reason, head=found.head)
            since = self._seen.damaged_since or codec.rfc3339(self._now())
            self.damage = describe(reason, since, found)
            await self._seen.mark(since)
        raise Damaged(reason)

    async def mended(self) -> None:
        """What was found sound is what is shown: not before, or the lost log would be shown as sound."""
        if self.damage is not None:
            log.info("log.mended", head=None if self.found is None else self.found.head)
        self.damage = None
        await self._seen.mark("")

    async def _read_state(self) -> FleetState:
        if not await streams.exists(self._connection):
            return FleetState()
        with search_paused():
            state = await read_current(self._connection)
        log.info("log.read", replicas=len(state.replicas), sequence=state.sequence)
        return state

    async def begin_anew(
        self, lost: Found, genesis: Genesis, above: int, leadership: Leadership
    ) -> Begun:
        """A recovery: this log follows on one that was lost, and we lead it.

        `lost`: what was judged as damage; nobody has begun a log since then, or it is that one's.
        `above`: no sequence that anybody has seen of the lost log is used again. Raises ApiError where
        the server refuses, LogDamaged where it makes no stream, Unavailable.
        """
        self.warnings = tuple(await make_room(self._connection, above, self._replicas))
        epoch = await get_from_log(self._connection, subjects.CONTROL_EPOCH)
        head = await streams.head(self._connection)
        envelope = Envelope(
            log=genesis.log_id, control=self._control, now=self._now(), seen=head, epoch=0
        )
        begun = envelope.seal(subjects.GENESIS, "log.recovered", genesis, _new_id(envelope))
        if await claim(self._connection, begun, lost.genesis_at) is None:
            return "changed"
        document = leadership.document(FleetState(), codec.rfc3339(envelope.now))
        lead = envelope.seal(subjects.CONTROL_EPOCH, "control.claimed", document, _new_id(envelope))
        fence = await claim(self._connection, lead, 0 if epoch is None else epoch.sequence)
        return "led_by_another" if fence is None else "begun"

    async def _write_genesis(self, now: float, head: int) -> None:
        """First document of a new log. Another control may be first: then it is that one's log."""
        log_id = LogId(secrets.token_hex(16))
        envelope = Envelope(log=log_id, control=self._control, now=now, seen=head, epoch=0)
        document = Genesis(log_id=log_id, format=FORMAT)
        sealed = envelope.seal(subjects.GENESIS, "log.begun", document, new_event_id(now))
        await write(self._connection, sealed, expected=0)


def _new_id(envelope: Envelope) -> EventId:
    return new_event_id(envelope.now)
