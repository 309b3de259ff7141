import pytest

from schemas.documents import ModelUse, RouterReport
from schemas.ids import ModelName, ReplicaId, RouterId
from services.fleet.idle import Idle, IdleFor, UnknownIdle, as_number, idle
from tests.builders import NOW, a_replica, at

REPLICA = a_replica()
R1, R2 = RouterId("router-1"), RouterId("router-2")


def a_report(
    router: RouterId = R1, *, since: float = 0.0, used: float | None = None
) -> RouterReport:
    last = {} if used is None else {REPLICA.id: at(used), ReplicaId("other-0-1"): at(999)}
    return RouterReport(
        router=router,
        incarnation="i",
        since=at(since),
        chunk=0,
        chunks=1,
        use=(ModelUse(model=ModelName("tiny"), last_used=last),),
    )


def idle_after(
    seconds: float, *reports: RouterReport, heard: tuple[RouterId, ...] = (R1, R2)
) -> Idle:
    return idle(REPLICA, reports, heard, NOW + seconds)


def test_the_newest_use_of_any_router_counts() -> None:  # spec: T7
    assert idle_after(100, a_report(R1, used=30), a_report(R2, used=70)) == IdleFor(30.0)


def test_watched_without_any_use_is_at_least_the_time_watched() -> None:  # spec: T8
    assert idle_after(100, a_report(R1, since=10), a_report(R2, since=40)) == IdleFor(60.0, True)


def test_a_router_that_has_just_started_knows_nothing_of_before() -> None:  # spec: T8
    assert idle_after(100, a_report(R1, used=30), a_report(R2, since=95)) == IdleFor(5.0, True)


@pytest.mark.parametrize(
    ("reports", "heard"),
    [
        ((), ()),
        ((), (R1,)),
        ((a_report(R1),), ()),
        ((a_report(R1, used=50), a_report(R2)), (R1,)),
        ((a_report(R1, used=50),), (R1, R2)),
    ],
)
def test_a_silent_or_absent_router_makes_it_unknown(
    reports: tuple[RouterReport, ...], heard: tuple[RouterId, ...]
) -> None:  # spec: T8
    found = idle(REPLICA, reports, heard, NOW + 100)
    assert isinstance(found, UnknownIdle)
    assert as_number(found) < 0


def test_unknown_has_no_order_with_durations() -> None:  # spec: T8
    with pytest.raises(TypeError):
        sorted([IdleFor(1.0), UnknownIdle("silent")])  # type: ignore[type-var]  # reason: that is the point
