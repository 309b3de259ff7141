"""The phase of a replica, computed from its standing; and what tells one start of it from another. Pure."""

from schemas.api import ReplicaPhase
from schemas.documents import ShardStatus
from services.fleet.standing import Standing


def incarnation(shard: ShardStatus) -> str:
    """Another start of the engine is another incarnation."""
    return f"{shard.attempt}.{shard.run}"


def phase(standing: Standing) -> ReplicaPhase:
    """The replica's phase; `gone` is never answered, since a gone replica has no document."""
    phases = {"placed" if held is None else held.document.phase for held in standing.current}
    goal = standing.document.goal
    if goal == "stop":
        return "stopping"
    if goal == "drain":
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
