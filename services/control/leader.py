"""Who leads, and when to claim. Pure: it is told what was heard and says when it is time.

The epoch document is the fence: its LOG sequence guards every batch, so a control that is no longer
its holder can write nothing, however late it wakes. Beats only decide when another claims:

- nobody has ever led, or this very control does by its id (it was restarted): at once;
- another leads: after 1.5 s without a beat of that leadership, counted from when this process could
  hear. Beats of an older epoch, and beats that report damage, keep nobody from claiming.

Who has been fenced by a control of the same name waits like everybody else: two that share a name
would take the lead from each other for ever.
"""

from schemas.beats import ControlBeat
from schemas.documents import ControlEpoch
from schemas.ids import ControlId
from services.fleet.state import FleetState

PATIENCE_SECONDS = 1.5
"""Without the leader's beat."""
RENEW_SECONDS = 24 * 3600.0
"""The holder claims anew so often, so that LOG's age never takes the epoch document."""


class Leadership:
    """Monotonic seconds throughout."""

    def __init__(self, control: ControlId, incarnation: str, address: str) -> None:
        self.control = control
        self.incarnation = incarnation
        self.address = address
        self.fence = 0
        """Sequence of our claim; 0: we do not lead."""
        self._claimed_at = 0.0
        self._fenced = False
        self._heard_epoch = 0
        self._heard_at: float | None = None
        self._seen_fence = 0
        self._seen_at = 0.0

    def begin(self) -> None:
        """A log was opened: what was claimed and heard before may have been of another one."""
        self.fence, self._fenced = 0, False
        self._heard_epoch, self._heard_at = 0, None

    @property
    def document(self) -> ControlEpoch:
        """What a claim writes."""
        return ControlEpoch(holder=self.control, incarnation=self.incarnation, address=self.address)

    def leads(self, state: FleetState) -> bool:
        """Our claim is the newest epoch document, and we have followed the log up to it."""
        return self.fence > 0 and state.fence == self.fence

    def heard(self, beat: ControlBeat, now: float) -> None:
        """A beat of another control."""
        if beat.incarnation == self.incarnation or beat.damaged or beat.epoch < self._heard_epoch:
            return
        self._heard_epoch, self._heard_at = beat.epoch, now

    def claimed(self, fence: int, now: float) -> None:
        """Our claim stands in the log."""
        self.fence, self._claimed_at = fence, now

    def fell(self) -> None:
        """Another has claimed."""
        if self.fence:
            self._fenced = True
        self.fence = 0

    def should_claim(self, state: FleetState, hearing_since: float | None, now: float) -> bool:
        """Whether it is time. `hearing_since` None: we cannot hear."""
        if state.fence != self._seen_fence:
            self._seen_fence, self._seen_at = state.fence, now
        if self.fence:
            return self.leads(state) and now - self._claimed_at >= RENEW_SECONDS
        held = state.epoch.get(())
        if held is None or (held.document.holder == self.control and not self._fenced):
            return True
        if hearing_since is None:
            return False
        last = max(hearing_since, self._seen_at)
        if self._heard_at is not None and self._heard_epoch >= state.fence:
            last = max(last, self._heard_at)
        return now - last >= PATIENCE_SECONDS
