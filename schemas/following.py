"""Rows of the management API that say how far others are behind.

A lag is given in sequences of the log and in seconds: the age of the oldest thing that was not applied
yet. Negative: unknown, since it follows another log or none.
"""

from msgspec import Struct

from schemas.ids import ControlId, NodeId, RouterId


class ControlRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One control service. Two rows with one name are two processes."""

    control: ControlId
    incarnation: str = ""
    leading: bool = False
    answering: bool = False
    """It gave this answer."""
    applied: int
    behind: int = 0
    """Of LOG's end."""
    behind_seconds: float = 0.0
    heard_seconds_ago: float = 0.0
    damaged: str = ""
    """Not empty: it decides nothing, and why."""


class RouterRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One router worker in tables."""

    router: RouterId
    incarnation: str = ""
    """One start of it; two rows with one name are two processes."""
    applied: int
    behind: int = 0
    """Of the newest catalog or endpoints document."""
    behind_seconds: float = 0.0
    heard_seconds_ago: float
    damaged: str = ""
    """Not empty: it applies nothing of the log, and why."""


class AgentLag(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that has not applied the assignment of its node."""

    node: NodeId
    assigned: int
    """LOG sequence of the assignment."""
    applied: int
    """Of the one that it obeys; 0: none."""
    behind_seconds: float


class AgentsFollowing(Struct, frozen=True, kw_only=True, rename="camel"):
    """All agents that beat, in numbers."""

    heard: int = 0
    current: int = 0
    behind: int = 0
    unknown: int = 0
    """They follow another log, or none."""
    worst: tuple[AgentLag, ...] = ()
    """The ones that have been behind longest, as many as are shown."""
