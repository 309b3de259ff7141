"""Who leads, and when to claim. Pure: it is told what was heard and says when it is time.

The epoch document is the fence: its LOG sequence guards every batch, so a control that is no longer
its holder can write nothing, however late it wakes. Beats only decide when another claims:

- nobody has ever led, or this very control does by its id (it was restarted): at once;
- it leads, and something that cannot be read came upon the epoch's subject: at once, since only a
  claim puts that right;
- another leads: after 1.5 s without a beat of that leadership, counted from when this process could
  hear; at once when its last beat says that it resigns. Beats of an older epoch, of a standby, of another
  log, and beats that report damage keep nobody from claiming.

Whoever has claimed beats from then on, also while it still follows the log up to its claim: another
that follows faster does not take the lead from it.

Who has been fenced by a control of the same name waits like everybody else: two that share a name
would take the lead from each other for ever.
"""

from schemas import subjects
from schemas.beats import ControlBeat
from schemas.documents import ControlEpoch
from schemas.ids import ControlId
from services.fleet.state import FleetState

PATIENCE_SECONDS = 1.5
"""Without the leader's beat."""
MOST_EPOCHS = 16
"""Epochs whose beats are remembered at a time: the one in force, and what others make of it."""
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
        self._heard: dict[int, float] = {}
        """When each epoch's holder last beat, the newest last."""
        self._resigned = 0
        """The epoch whose holder said that it ends."""
        self._seen_fence = 0
        self._seen_at = 0.0

    def begin(self) -> None:
        """A log was opened: what was claimed and heard before may have been of another one."""
        self.fence, self._fenced, self._resigned = 0, False, 0
        self._heard.clear()

    def document(self, state: FleetState, now: str) -> ControlEpoch:
        """What a claim writes at the fleet's time `now`."""
        held = state.epoch.get(())
        renews = held is not None and self.leads(state)
        return ControlEpoch(
            holder=self.control,
            incarnation=self.incarnation,
            address=self.address,
            since=(held.document.since if held is not None and renews else "") or now,
        )

    def leads(self, state: FleetState) -> bool:
        """Our claim is the newest epoch document, and we have followed the log up to it."""
        return self.fence > 0 and state.fence == self.fence

    def holds(self, state: FleetState) -> bool:
        """We have claimed, and know of no later claim; we may not have followed the log so far."""
        return self.fence > 0 and state.fence <= self.fence

    def heard(self, beat: ControlBeat, now: float) -> None:
        """A beat of another control that follows the same log."""
        if beat.incarnation == self.incarnation or beat.damaged:
            return
        if beat.resigned:
            self._resigned = beat.epoch
        elif beat.leading:
            self._heard.pop(beat.epoch, None)
            self._heard[beat.epoch] = now
            if len(self._heard) > MOST_EPOCHS:
                del self._heard[next(iter(self._heard))]

    @property
    def heard_epochs(self) -> frozenset[int]:
        """Epochs whose holders' beats are remembered."""
        return frozenset(self._heard)

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
            due = now - self._claimed_at >= RENEW_SECONDS
            return self.leads(state) and (due or state.is_set_aside(subjects.CONTROL_EPOCH))
        held = state.epoch.get(())
        if held is None or (held.document.holder == self.control and not self._fenced):
            return True
        if self._resigned == state.fence:
            return True
        if hearing_since is None:
            return False
        beats = [at for epoch, at in self._heard.items() if epoch >= state.fence]
        return now - max(hearing_since, self._seen_at, *beats) >= PATIENCE_SECONDS
