"""The part of `flotilla status` on who leads, and how far the others are behind."""

from collections.abc import Iterator

from ctl.at import local
from ctl.render import counts, duration
from schemas.api import Status
from schemas.following import AgentLag, AgentsFollowing, ControlRow, RouterRow

MOST_AGENTS = 5
"""Agents that are named."""


def leader(fleet: Status) -> str:
    """Who leads, and since when."""
    if not fleet.leader:
        return "no leader"
    since = f" since {local(fleet.leader_since)}" if fleet.leader_since else ""
    return f"led by {fleet.leader}{since}"


def followers(fleet: Status) -> Iterator[str]:
    """A line for each standby and router; of agents, their numbers and the ones furthest behind."""
    for control in fleet.controls:
        if not control.leading:
            yield f"  control   {_control(control)}"
    for router in fleet.routers:
        yield f"  router    {_router(router)}"
    if fleet.agents.heard:
        yield f"  agents    {_agents(fleet.agents)}"
    for agent in fleet.agents.worst[:MOST_AGENTS]:
        yield f"  agent     {_agent(agent)}"


def _control(row: ControlRow) -> str:
    answering = ", gave this answer" if row.answering else ""
    damaged = f", decides nothing: {row.damaged}" if row.damaged else ""
    lag = _lag(row.behind, row.behind_seconds)
    return f"{row.control}: follows{lag}, heard {_heard(row)} ago{answering}{damaged}"


def _router(row: RouterRow) -> str:
    lag = _lag(row.behind, row.behind_seconds)
    return f"{row.router}: applied {row.applied:,}{lag}, heard {_heard(row)} ago"


def _heard(row: ControlRow | RouterRow) -> str:
    return duration(row.heard_seconds_ago)


def _lag(sequences: int, seconds: float) -> str:
    if sequences < 0:
        return ", follows no log or another"
    return f", {sequences:,} behind for {duration(seconds)}" if sequences else ""


def _agents(agents: AgentsFollowing) -> str:
    return counts(
        {"current": agents.current, "behind": agents.behind, "of another log": agents.unknown}
    )


def _agent(row: AgentLag) -> str:
    return (
        f"{row.node}: assignment {row.assigned:,} not applied for {duration(row.behind_seconds)}, "
        f"obeys {f'{row.applied:,}' if row.applied else 'none'}"
    )
