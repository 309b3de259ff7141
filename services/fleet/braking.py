"""The mass-silence brake as it is shown. Pure; what engages and ends it is control's to decide."""

from collections.abc import Iterator

from schemas.brake import BrakeRow, BrakeView
from schemas.ids import NodeId
from services.fleet.state import FleetState


def brake_row(state: FleetState) -> BrakeRow | None:
    """None: it is off."""
    held = state.brake.get(())
    if held is None or not held.document.engaged:
        return None
    conditions = {h.document.node: h.document.condition for h in state.verdicts.values()}
    silent = {node for node, condition in conditions.items() if condition != "alive"}
    return BrakeRow(
        since=held.document.since,
        silent=held.document.silent,
        nodes=held.document.nodes,
        still_silent=sum(condition == "unreachable" for condition in conditions.values()),
        replicas_held=_replicas_on(state, silent),
        calm_since=held.document.calm_since or "",
    )


def _replicas_on(state: FleetState, nodes: set[NodeId]) -> int:
    return sum(
        held.document.goal == "run" and any(plan.node in nodes for plan in held.document.shards)
        for held in state.replicas.values()
    )


def brake_view(state: FleetState) -> BrakeView:
    """Whether it is on, else how it ended."""
    row, held = brake_row(state), state.brake.get(())
    if row is not None or held is None:
        return BrakeView(as_of_seq=state.sequence, engaged=row is not None, brake=row)
    return BrakeView(
        as_of_seq=state.sequence,
        engaged=False,
        released_at=held.at,
        released_by=held.document.released_by or "",
    )


def brake_attention(row: BrakeRow | None) -> Iterator[str]:
    """What `status` says of it."""
    if row is None:
        return
    yield (
        f"brake on since {row.since}: {row.silent} of {row.nodes} nodes fell silent at once, "
        f"{row.still_silent} still are; no node is lost and nothing rebuilt until it ends "
        f"({row.replicas_held} replicas held)"
    )
