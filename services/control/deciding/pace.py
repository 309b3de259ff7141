"""When another pass is worth its time. Pure.

A pass over a small fleet costs a millisecond: one a turn, whatever happened. Over a large one it
costs most of a second, so there it is made only when it could decide what the last one did not: when
the log went on, another catalog is in force, somebody fell silent or was heard again, a router
applied more, a time has come that the last pass waits for; and now and then all the same. It rests
as long as it worked, so that half of the time is left for everything else.
"""

from collections.abc import Mapping

from msgspec import Struct

from schemas.ids import NodeId, RouterId
from services.control.deciding.adopting import first_slot
from services.control.deciding.brake import SILENT_SECONDS
from services.control.deciding.current import Current
from services.control.deciding.silence import Silence
from services.fleet.state import FleetState

SMALL_FLEET_NODES = 300
LONGEST_SECONDS = 10.0
"""Without a pass, in a large fleet."""


class Look(Struct, frozen=True):
    """All that a pass depends on, but for the time that goes by."""

    sequence: int
    catalog: int
    """Which value of `Current`, told apart by identity."""
    silent: frozenset[NodeId]
    returned: frozenset[NodeId]
    """Heard, though their verdict still says otherwise."""
    untold: int
    """Nodes that were heard and told nothing yet, in a log where they are not told before (`adopting.py`)."""
    unanswered: frozenset[NodeId]
    routers: Mapping[RouterId, int]


def look(state: FleetState, current: Current, silence: Silence) -> Look:
    """At this moment."""
    short = min(SILENT_SECONDS, silence.least_seconds)
    nodes = [held.document.node for held in state.infos.values()]
    return Look(
        sequence=state.sequence,
        catalog=id(current),
        silent=frozenset([node for node in nodes if silence.of(node) >= short]),
        returned=frozenset(
            [
                held.document.node
                for held in state.verdicts.values()
                if held.document.condition != "alive" and held.document.node in silence.nodes
            ]
        ),
        untold=_untold(state, silence),
        unanswered=silence.unanswered,
        routers=silence.routers,
    )


def _untold(state: FleetState, silence: Silence) -> int:
    if not first_slot(state) or len(state.assignments) == len(state.infos):
        return 0
    return sum(state.assignment(node) is None for node in silence.nodes)


def is_small(state: FleetState) -> bool:
    """A pass over it is no work."""
    return len(state.infos) <= SMALL_FLEET_NODES


class Pace:
    """`passed` after each pass. Monotonic seconds, but for `wake_at` and `now`: the fleet's clock."""

    def __init__(self) -> None:
        self._last: Look | None = None
        self._wake_at: float | None = None
        self._began = self._ended = 0.0

    def begin(self) -> None:
        """Another log, or something that was decided does not stand: whatever was seen is forgotten."""
        self._last = None

    def passed(self, seen: Look, wake_at: float | None, began: float, ended: float) -> None:
        """A pass saw this."""
        self._last, self._wake_at = seen, wake_at
        self._began, self._ended = began, ended

    def rest(self, monotonic: float) -> float:
        """Seconds that are left of its rest."""
        return max(0.0, 2 * self._ended - self._began - monotonic)

    def is_due(self, seen: Look, now: float, monotonic: float) -> bool:
        """Whether another pass could decide something else; whether it has rested is not asked."""
        if self._last is None or seen != self._last or monotonic - self._ended >= LONGEST_SECONDS:
            return True
        return self._wake_at is not None and now >= self._wake_at
