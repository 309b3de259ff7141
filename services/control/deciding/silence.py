"""Who has not been heard, for how long, as one observing process measures it. Pure: time is passed in.

Silence is never state: only the verdicts it leads to are (`verdicts.py`). It counts from when this
process could hear: NATS connected, and its own loop not stalled. After either, hearing begins anew
and everybody's silence with it (L3). Who was not heard since is not silent for longer than this
process has known of it, either: a node that joins says first what it is, and beats then.
"""

from collections.abc import Mapping

from msgspec import Struct

from schemas.ids import NodeId, RouterId

UNREACHABLE_SECONDS = 5.0
"""Silence after which a router is no longer waited for, and, unless set otherwise, a node unreachable."""
STALL_SECONDS = 2.0
"""A longer gap between two turns of the observer's loop: it could not have heard."""
PROBE_SECONDS = 4.0
"""Silence after which a node is probed directly, so that the answer is there when it is needed."""


class Silence(Struct, frozen=True, kw_only=True):
    """One measure, taken at one moment of the monotonic clock. Input of `decide`."""

    hearing_seconds: float
    """How long this process has been able to hear; 0: it cannot."""
    nodes: Mapping[NodeId, float] = {}
    """Seconds since each node was heard; absent: not since hearing began."""
    joined: Mapping[NodeId, float] = {}
    """Seconds since this process read what a node says of itself, where it was not heard since."""
    unanswered: frozenset[NodeId] = frozenset()
    """Nodes whose last direct probe, sent since they fell silent, failed."""
    routers: Mapping[RouterId, int] = {}
    """LOG sequence applied by each router that was heard lately; by all processes of that name."""
    unreachable_after: float | None = UNREACHABLE_SECONDS
    """Silence after which a node is unreachable; None: never, it is alive until it is lost."""

    @property
    def least_seconds(self) -> float:
        """Silence short of which no node is judged."""
        after = self.unreachable_after
        return UNREACHABLE_SECONDS if after is None else after

    def of(self, node: NodeId) -> float:
        """Seconds for which the node could have been heard and was not."""
        heard = self.nodes.get(node)
        if heard is not None:
            return heard
        return min(self.hearing_seconds, self.joined.get(node, self.hearing_seconds))

    @property
    def routers_known(self) -> bool:
        """Every router that beats has had the time to be heard."""
        return self.hearing_seconds >= UNREACHABLE_SECONDS


class _Router(Struct, frozen=True):
    heard: float
    applied: int


def _is_heard(router: _Router, now: float) -> bool:
    return now - router.heard < UNREACHABLE_SECONDS


class Hearing:
    """What was heard and when. The shell calls `turn` at least once a second. Monotonic seconds."""

    def __init__(self, unreachable_after: float | None = UNREACHABLE_SECONDS) -> None:
        self._unreachable_after = unreachable_after
        self._since: float | None = None
        self._last_turn: float | None = None
        self._nodes: dict[NodeId, float] = {}
        self._joined: dict[NodeId, tuple[str, float]] = {}
        """Nodes that were not heard since: the start of the agent that joined, and when."""
        self._routers: dict[tuple[RouterId, str], _Router] = {}
        """By name and incarnation: a second process of the same name also routes."""
        self._unanswered: dict[NodeId, float] = {}

    def turn(self, now: float, *, connected: bool) -> None:
        """The observer's loop turned. While NATS is away, or after a stall, nothing counts."""
        stalled = self._last_turn is not None and now - self._last_turn > STALL_SECONDS
        self._last_turn = now
        if not connected or stalled:
            self._forget()
        if not connected:
            self._since = None
        elif self._since is None:
            self._since = now

    @property
    def since(self) -> float | None:
        """When this process began to hear; None: it cannot."""
        return self._since

    def _forget(self) -> None:
        self._since = None
        self._nodes.clear()
        self._joined.clear()
        self._routers.clear()
        self._unanswered.clear()

    def begin(self) -> None:
        """Another log is followed: who was heard may follow the one before."""
        self._nodes.clear()
        self._joined.clear()
        self._unanswered.clear()

    def joined(self, node: NodeId, incarnation: str, now: float) -> None:
        """An agent's word of itself was folded, perhaps again: by now it could not have been heard."""
        if node not in self._nodes and self._joined.get(node, ("", 0.0))[0] != incarnation:
            self._joined[node] = incarnation, now

    def node(self, node: NodeId, now: float) -> None:
        """A beat of an agent."""
        self._nodes[node] = now
        self._joined.pop(node, None)
        self._unanswered.pop(node, None)

    def router(self, router: RouterId, incarnation: str, applied: int, now: float) -> None:
        """A beat of a router. Those that fell silent are forgotten."""
        self._routers[router, incarnation] = _Router(now, applied)
        self._routers = {key: of for key, of in self._routers.items() if _is_heard(of, now)}

    def _applied(self, now: float) -> dict[RouterId, int]:
        """Of processes with one name, the slowest counts."""
        least: dict[RouterId, int] = {}
        for (router, _), of in self._routers.items():
            if _is_heard(of, now):
                least[router] = min(of.applied, least.get(router, of.applied))
        return least

    def probed(self, node: NodeId, asked_at: float, *, answered: bool) -> None:
        """A direct probe ended. It says nothing of a node that was heard after it was sent."""
        heard = self._nodes.get(node)
        if heard is not None and heard >= asked_at:
            return
        if answered:
            self._unanswered.pop(node, None)
        else:
            self._unanswered[node] = asked_at

    def measure(self, now: float) -> Silence:
        """The silence at this moment."""
        if self._since is None:
            return Silence(hearing_seconds=0.0, unreachable_after=self._unreachable_after)
        return Silence(
            hearing_seconds=now - self._since,
            nodes={node: now - heard for node, heard in self._nodes.items()},
            joined={node: now - joined for node, (_, joined) in self._joined.items()},
            unanswered=frozenset(self._unanswered),
            routers=self._applied(now),
            unreachable_after=self._unreachable_after,
        )
