"""What about leadership and lag is worth a look, for the status page. Pure."""

from collections.abc import Iterator, Sequence

from schemas.following import AgentsFollowing, ControlRow, RouterRow
from services.fleet.state import FleetState

LATE_SECONDS = 10.0
"""Whoever is behind for longer is worth a look."""


def leader_since(state: FleetState) -> str:
    """When the leader took the lead, RFC 3339; empty: nobody ever did."""
    held = state.epoch.get(())
    return "" if held is None else held.document.since or held.at


def lead_attention(leader: str, controls: Sequence[ControlRow]) -> Iterator[str]:
    """`leader` claimed last; `controls` are those that beat now."""
    if leader and controls and not any(row.leading for row in controls):
        yield f"nobody leads: {leader} did last, and does not say so any more"


def late_attention(
    controls: Sequence[ControlRow], routers: Sequence[RouterRow], agents: AgentsFollowing
) -> Iterator[str]:
    """Who has not applied for long what stands in the log."""
    rows = [(f"control {row.control}", row.behind, row.behind_seconds) for row in controls]
    rows += [(f"router {row.router}", row.behind, row.behind_seconds) for row in routers]
    for who, sequences, seconds in rows:
        if seconds >= LATE_SECONDS:
            yield f"{who} is {sequences} sequences behind, for {seconds:.0f} s"
    for lag in agents.worst:
        if lag.behind_seconds >= LATE_SECONDS:
            yield (
                f"node {lag.node} has not applied its assignment {lag.assigned} "
                f"for {lag.behind_seconds:.0f} s"
            )
