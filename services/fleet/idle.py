"""How long nobody has asked for a replica. Unknown is not idle.

A replica counts as idle only over a time that every router watched; a router that is silent, or none
at all, makes it unknown. `UnknownIdle` has no order with durations, so no sort and no threshold can
take it for a number by mistake.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from schemas import codec
from schemas.documents import ReplicaDocument, RouterReport
from schemas.ids import ReplicaId, RouterId


@dataclass(frozen=True)
class IdleFor:
    """Unused for `seconds`; with `at_least`, watched for so long without any use."""

    seconds: float
    at_least: bool = False


@dataclass(frozen=True)
class UnknownIdle:
    """Nobody can say; `reason` says why."""

    reason: str


Idle = IdleFor | UnknownIdle


def idle(
    replica: ReplicaDocument,
    reports: Iterable[RouterReport],
    heard: Collection[RouterId],
    now: float,
) -> Idle:
    """`heard` are the routers that beat now, `now` seconds since 1970."""
    newest: dict[RouterId, float] = {}
    used: list[float] = []
    for report in reports:
        newest[report.router] = codec.seconds(report.since)
        used.extend(codec.seconds(at) for at in _uses(report, replica.id))
    if not newest:
        return UnknownIdle("no router has reported")
    silent = sorted(newest.keys() - set(heard))
    if silent:
        return UnknownIdle(f"router {silent[0]} is silent")
    unreported = sorted(set(heard) - newest.keys())
    if unreported:
        return UnknownIdle(f"router {unreported[0]} has not reported yet")
    watched_since = max(*newest.values(), codec.seconds(replica.since))
    if used and max(used) >= watched_since:
        return IdleFor(max(0.0, now - max(used)))
    return IdleFor(max(0.0, now - watched_since), at_least=True)


def _uses(report: RouterReport, replica: ReplicaId) -> list[str]:
    return [use.last_used[replica] for use in report.use if replica in use.last_used]


def as_number(value: Idle) -> float:
    """For JSON and YAML: negative where unknown."""
    return value.seconds if isinstance(value, IdleFor) else -1.0
