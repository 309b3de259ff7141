"""How long nobody has asked for a replica. Unknown is not idle.

A replica counts as idle only over a time that every router watched. A router that is silent, has not
told all of what it saw since it last started, or none at all, makes it unknown. `UnknownIdle` has no order with durations, so no sort and no threshold can
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
    heard: Collection[tuple[RouterId, str]],
    now: float,
) -> Idle:
    """`reports` as they stand in the log, the oldest first. `heard` are the routers that beat now,
    each with its incarnation. `now`: seconds since 1970.
    """
    told = _by_router(reports)
    if not told:
        return UnknownIdle("no router has reported")
    silent = sorted(told.keys() - {router for router, _ in heard})
    if silent:
        return UnknownIdle(f"router {silent[0]} is silent")
    for router, incarnation in sorted(heard):
        if router not in told or not told[router].is_whole(incarnation):
            return UnknownIdle(f"router {router} has not reported all since it started")
    newest = [report for of_router in told.values() for report in of_router.chunks.values()]
    used = [codec.seconds(at) for report in newest for at in _uses(report, replica.id)]
    watched_since = max(codec.seconds(at) for at in (replica.since, *(r.since for r in newest)))
    if used and max(used) >= watched_since:
        return IdleFor(max(0.0, now - max(used)))
    return IdleFor(max(0.0, now - watched_since), at_least=True)


@dataclass
class _Told:
    """What the newest start of one router has told."""

    incarnation: str
    total: int
    """Chunks that its last report speaks of."""
    chunks: dict[int, RouterReport]

    def is_whole(self, incarnation: str) -> bool:
        """All that this start of the router has to tell."""
        parts = (self.chunks.get(number) for number in range(self.total))
        return self.incarnation == incarnation and all(
            part is not None and part.chunks == self.total for part in parts
        )


def _by_router(reports: Iterable[RouterReport]) -> dict[RouterId, _Told]:
    """Chunks of an earlier start stand until they are written over, and say nothing."""
    found: dict[RouterId, _Told] = {}
    for report in reports:
        told = found.get(report.router)
        if told is None or told.incarnation != report.incarnation:
            told = found[report.router] = _Told(report.incarnation, 0, {})
        told.total = report.chunks
        told.chunks[report.chunk] = report
    return found


def _uses(report: RouterReport, replica: ReplicaId) -> list[str]:
    return [use.last_used[replica] for use in report.use if replica in use.last_used]


def as_number(value: Idle) -> float:
    """For JSON and YAML: negative where unknown."""
    return value.seconds if isinstance(value, IdleFor) else -1.0
