"""How far others are behind, as the answering process measures it. Pure: monotonic seconds are passed in.

In sequences: where the log is, less what a beat says was applied. In seconds: the age of the oldest thing
that was not applied yet, counted from when this process knew of it. So a control that has just started
knows a lag at least as short as its own life.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from msgspec import Struct

from schemas.beats import AgentBeat, ControlBeat, RouterBeat
from schemas.following import AgentLag, AgentsFollowing, ControlRow, RouterRow
from schemas.ids import NodeId
from services.fleet.state import FleetState

MARK_SECONDS = 0.25
"""What comes within this time shares a mark: a lag in seconds is at most this much too long."""
MOST_MARKS = 4096
WORST_SHOWN = 20
"""Agents that are named, of those that are behind."""


class Lag(Struct, frozen=True):
    """Behind by so much; negative: unknown, it follows another log or none."""

    sequences: int = 0
    seconds: float = 0.0


_UNKNOWN = Lag(-1, -1.0)


class Marks:
    """When this process knew that the log was how far: the newest ones, oldest first."""

    def __init__(self) -> None:
        self._sequences: list[int] = []
        self._times: list[float] = []

    @property
    def newest(self) -> int:
        """How far the log is; 0: not known."""
        return self._sequences[-1] if self._sequences else 0

    @property
    def kept(self) -> int:
        """How many there are."""
        return len(self._times)

    def note(self, sequence: int, now: float) -> None:
        """The log holds this."""
        if sequence <= self.newest:
            return
        if self._times and now - self._times[-1] < MARK_SECONDS:
            self._sequences[-1] = sequence
            return
        self._sequences.append(sequence)
        self._times.append(now)
        if len(self._times) >= 2 * MOST_MARKS:
            del self._sequences[:MOST_MARKS], self._times[:MOST_MARKS]

    def seen_at(self, sequence: int, otherwise: float) -> float:
        """When it was known that the log had come to `sequence`."""
        at = bisect_left(self._sequences, sequence)
        return self._times[at] if at < len(self._times) else otherwise

    def lag(self, applied: int, now: float) -> Lag:
        """Of who has applied so much."""
        at = bisect_right(self._sequences, applied)
        if at == len(self._times):
            return Lag()
        return Lag(self.newest - applied, round(now - self._times[at], 3))


class Followers:
    """Controls are compared with LOG's end, routers with the newest document that they follow, agents
    with the assignment of their node.
    """

    def __init__(self) -> None:
        self.head = Marks()
        self.routing = Marks()
        self._behind: dict[NodeId, float] = {}
        """Since when agents have been behind without a pause."""

    def begin(self, head: int, routing: int, now: float) -> None:
        """A log was opened."""
        self.head, self.routing = Marks(), Marks()
        self._behind.clear()
        self.folded(head, routing, now)

    def folded(self, head: int, routing: int, now: float) -> None:
        """The log is at least so far, and so is what routers follow."""
        self.head.note(head, now)
        self.routing.note(routing, now)

    def agent(self, state: FleetState, beat: AgentBeat, now: float) -> None:
        """An agent told what it has applied."""
        wanted = _assigned(state, beat.node)
        if wanted <= beat.assignment:
            self._behind.pop(beat.node, None)
        elif beat.node not in self._behind:
            self._behind[beat.node] = self.head.seen_at(wanted, now)

    def forget(self, kept: Callable[[NodeId], object]) -> None:
        """Agents that are not heard any more are not behind, they are silent."""
        self._behind = {node: since for node, since in self._behind.items() if kept(node)}

    def control(
        self, state: FleetState, beat: ControlBeat, at: float, now: float, *, answering: bool
    ) -> ControlRow:
        """A control whose last beat came at `at`."""
        lag = self.head.lag(beat.head, now) if beat.log == state.log_id else _UNKNOWN
        return ControlRow(
            control=beat.control,
            incarnation=beat.incarnation,
            leading=beat.leading and beat.epoch == state.fence,
            answering=answering,
            applied=beat.head,
            behind=lag.sequences,
            behind_seconds=lag.seconds,
            heard_seconds_ago=round(now - at, 3),
            damaged=beat.damaged,
        )

    def router(self, state: FleetState, beat: RouterBeat, at: float, now: float) -> RouterRow:
        """A router whose last beat came at `at`."""
        lag = self.routing.lag(beat.applied, now) if beat.log == state.log_id else _UNKNOWN
        return RouterRow(
            router=beat.router,
            incarnation=beat.incarnation,
            applied=beat.applied,
            behind=lag.sequences,
            behind_seconds=lag.seconds,
            heard_seconds_ago=round(now - at, 3),
            damaged=beat.damaged,
        )

    def agents(self, state: FleetState, beats: Iterable[AgentBeat], now: float) -> AgentsFollowing:
        """All agents that beat, in numbers, and the worst by name."""
        heard = list(beats)
        known = [beat for beat in heard if beat.log == state.log_id]
        late = [beat for beat in known if beat.assignment < _assigned(state, beat.node)]
        late.sort(key=lambda beat: (self._behind.get(beat.node, now), beat.node))
        return AgentsFollowing(
            heard=len(heard),
            current=len(known) - len(late),
            behind=len(late),
            unknown=len(heard) - len(known),
            worst=tuple(self._agent(state, beat, now) for beat in late[:WORST_SHOWN]),
        )

    def _agent(self, state: FleetState, beat: AgentBeat, now: float) -> AgentLag:
        return AgentLag(
            node=beat.node,
            assigned=_assigned(state, beat.node),
            applied=beat.assignment,
            behind_seconds=round(now - self._behind.get(beat.node, now), 3),
        )


def _assigned(state: FleetState, node: NodeId) -> int:
    """LOG sequence of what the node was last told; 0: nothing."""
    held = state.assignment(node)
    return 0 if held is None else held.sequence
