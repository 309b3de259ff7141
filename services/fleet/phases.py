"""Where each replica stands: computed from control's replica document and the agents' shard documents.

Control decides by these, and every table shows them, so that nothing shown differs from what was
decided by.
"""

from schemas.api import ReplicaPhase
from schemas.documents import NodeCondition, ReplicaDocument, ShardPlan, ShardStatus
from schemas.ids import NodeId
from services.fleet.state import FleetState


def condition(state: FleetState, node: NodeId) -> NodeCondition:
    """A node that was never judged is alive."""
    held = state.verdict(node)
    return "alive" if held is None else held.document.condition


def is_lost(state: FleetState, replica: ReplicaDocument, patience_seconds: float | None) -> bool:
    """Any of its nodes is lost, and has been silent for longer than the model's patience (None: never)."""
    if patience_seconds is None:
        return False
    for plan in replica.shards:
        held = state.verdict(plan.node)
        if held is None or held.document.condition != "lost":
            continue
        outlasted = held.document.lost_patience_seconds
        if outlasted is not None and outlasted >= patience_seconds:
            return True
    return False


def shard_of(state: FleetState, replica: ReplicaDocument, plan: ShardPlan) -> ShardStatus | None:
    """What the agent says of this planned shard in the current attempt; None: nothing yet."""
    for held in state.shards_of(replica.id):
        shard = held.document
        if (shard.node, shard.rank, shard.attempt) == (plan.node, plan.rank, replica.attempt):
            return shard
    return None


def current_shards(state: FleetState, replica: ReplicaDocument) -> tuple[ShardStatus | None, ...]:
    """One a planned shard, in rank order."""
    return tuple(shard_of(state, replica, plan) for plan in replica.shards)


def is_ready(state: FleetState, replica: ReplicaDocument) -> bool:
    """Every shard of the current attempt is ready."""
    return all(
        shard is not None and shard.phase == "ready" for shard in current_shards(state, replica)
    )


def incarnation(shard: ShardStatus) -> str:
    """Another start of the engine is another incarnation."""
    return f"{shard.attempt}.{shard.run}"


def is_over(state: FleetState, replica: ReplicaDocument) -> bool:
    """No agent has anything of it left, in any attempt."""
    return all(held.document.phase == "stopped" for held in state.shards_of(replica.id))


def phase(state: FleetState, replica: ReplicaDocument) -> ReplicaPhase:
    """The replica's phase; `gone` is never answered, since a gone replica has no document."""
    shards = current_shards(state, replica)
    phases = {"placed" if shard is None else shard.phase for shard in shards}
    if replica.goal == "stop":
        return "stopping"
    if replica.goal == "drain":
        return "stopping" if phases & {"stopping", "stopped"} else "draining"
    return _running_phase(phases)


_WORST_FIRST: tuple[tuple[str, ReplicaPhase], ...] = (
    ("failed", "failed"),
    ("stopping", "stopping"),
    ("stopped", "stopping"),
    ("starting", "starting"),
    ("loading", "loading"),
)


def _running_phase(phases: set[str]) -> ReplicaPhase:
    """A replica is as far as its slowest shard; a failed shard fails it."""
    if phases == {"placed"}:
        return "placed"
    if phases == {"ready"}:
        return "ready"
    for of_shard, of_replica in _WORST_FIRST:
        if of_shard in phases:
            return of_replica
    return "starting"  # Some ready, some not reported yet.
