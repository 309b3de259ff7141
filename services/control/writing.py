"""How the leader writes: claims, and atomic batches guarded by its epoch. Shell.

How it fails:
- NATS away: a batch goes again until its outcome is known; a claim is tried once a turn.
- A batch whose outcome stays unknown for long (`stuck`): the lead is let go, so that another may claim. Then
  this batch is refused, or it has landed before.
- Fenced: another leads, and this control has fallen.
- What was written does not come back through the log: `folded` raises, and the log is opened anew.
- The server refuses a write for good: `refused` says why, and nothing was written.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import structlog
from msgspec import Struct

from schemas import codec, subjects
from services.control.deciding.drafts import Draft
from services.control.deciding.reconcile import Counts
from services.control.leader import Leadership
from services.control.seal import Envelope
from services.fleet.state import FleetState
from services.log.api import ApiError
from services.log.append import Appended, Fenced, Sealed, append, claim
from services.log.connect import Connection
from services.log.event_ids import new_event_id
from services.log.message import Unavailable
from services.log.snapshot import get_from_log

STUCK_SECONDS = 15.0
"""Longer than the servers of a cluster need to choose another leader of the stream."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Tally(Struct):
    """What happened, for metrics."""

    turns: int = 0
    batches: int = 0
    events: int = 0
    fenced: int = 0
    turn_seconds: float = 0.0
    append_seconds: float = 0.0
    counts: Counts | None = None

    def passed(self, counts: Counts, seconds: float) -> None:
        """A pass over the fleet."""
        self.turns += 1
        self.turn_seconds += seconds
        self.counts = counts


class Writing:
    """One write at a time. What was written is folded before it returns."""

    def __init__(
        self,
        connection: Connection,
        leadership: Leadership,
        state: Callable[[], FleetState],
        now: Callable[[], float],
        folded: Callable[[int], Awaitable[None]],
    ) -> None:
        self.refused = ""
        """Why the server refused our last write; empty: it did not."""
        self.tally = Tally()
        self._began: float | None = None
        """When the batch under way was first sent, monotonic."""
        self._connection = connection
        self._leadership = leadership
        self._state = state
        self._now = now
        self._folded = folded

    @property
    def stuck(self) -> bool:
        """A batch is under way, and its outcome has been unknown for long."""
        return self._began is not None and monotonic() - self._began >= STUCK_SECONDS

    async def claim(self, inspect: Callable[[FleetState], Awaitable[None]]) -> None:
        """By CAS on the epoch document as LOG holds it: what its age removed counts as none."""
        try:
            await inspect(self._state())  # Never into a log that is not ours.
            standing = await get_from_log(self._connection, subjects.CONTROL_EPOCH)
            if standing is not None and standing.sequence > self._state().sequence:
                return  # Not folded yet.
            # A replica that lags may tell of an older one than was folded.
            expected = 0 if standing is None else max(standing.sequence, self._state().fence)
            fence = await claim(self._connection, self._epoch(), expected, patience_seconds=0.0)
        except Unavailable as error:
            log.warning("claim.unknown", reason=str(error))
            return
        except ApiError as error:
            self._refuse("claim.refused", error)
            return
        self.refused = ""
        if fence is None:
            self.fell("another was first")
            return
        self._leadership.claimed(fence, monotonic())
        await self._folded(fence)
        log.info("control.leads", fence=fence)

    def _epoch(self) -> Sealed:
        envelope = self.envelope()
        document = self._leadership.document(self._state(), codec.rfc3339(envelope.now))
        return envelope.seal(
            subjects.CONTROL_EPOCH, "control.claimed", document, new_event_id(envelope.now)
        )

    def _refuse(self, event: str, error: ApiError) -> None:
        """Tried anew at the next tick; told once a reason."""
        reason = f"the event log is full: {error}" if error.full else str(error)
        if self.refused != reason:
            log.error(event, reason=reason)
            self.refused = reason

    def fell(self, reason: str) -> None:
        """Another leads."""
        if self._leadership.fence:
            log.warning("control.fenced", fence=self._leadership.fence, reason=reason)
            self.tally.fenced += 1
        self._leadership.fell()

    def envelope(self) -> Envelope:
        """Of what is written now."""
        log_id = self._state().log_id
        if log_id is None:
            raise AssertionError("a log without a genesis is not followed")
        return Envelope(
            log=log_id,
            control=self._leadership.control,
            now=self._now(),
            seen=self._state().sequence,
            epoch=self._leadership.fence,
        )

    async def write(self, envelope: Envelope, batch: Sequence[Draft]) -> bool:
        """Whether the batch stands in the log and in the state."""
        written = await self._append([envelope.draft(draft) for draft in batch])
        for draft in batch if written else ():
            log.info(draft.type, subject=draft.subject, event_id=draft.id)
        return written

    async def _append(self, events: Sequence[Sealed]) -> bool:
        """Whether all of it stands in the log and in the state. The outcome is always known."""
        began = self._began = monotonic()
        try:
            outcome = await self._until_known(events)
        except ApiError as error:
            self._refuse("append.refused", error)
            return False
        finally:
            self._began = None
        self.refused = ""
        if isinstance(outcome, Fenced):
            self.fell(outcome.reason)
            return False
        await self._folded(outcome.sequence)
        self.tally.batches += 1
        self.tally.events += len(events)
        self.tally.append_seconds += monotonic() - began
        return True

    async def _until_known(self, events: Sequence[Sealed]) -> Appended | Fenced:
        fence, again = self._leadership.fence, False
        while True:
            try:
                return await append(self._connection, events, fence, again=again)
            except Unavailable as error:
                log.warning("append.unknown", reason=str(error))
                again = True
