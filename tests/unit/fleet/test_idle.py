import pytest

from schemas.documents import ModelUse, RouterReport
from schemas.ids import ModelName, ReplicaId, RouterId
from services.fleet.idle import Idle, IdleFor, UnknownIdle, as_number, idle
from tests.builders import NOW, a_replica, at

REPLICA = a_replica()
R1, R2 = RouterId("router-1"), RouterId("router-2")


def a_report(
    router: RouterId = R1,
    *,
    since: float = 0.0,
    used: float | None = None,
    incarnation: str = "i",
    chunk: int = 0,
    chunks: int = 1,
) -> RouterReport:
    last = {} if used is None else {REPLICA.id: at(used), ReplicaId("other-0-1"): at(999)}
    return RouterReport(
        router=router,
        incarnation=incarnation,
        since=at(since),
        chunk=chunk,
        chunks=chunks,
        use=(ModelUse(model=ModelName("tiny"), last_used=last),),
    )


def idle_after(
    seconds: float, *reports: RouterReport, heard: tuple[RouterId, ...] = (R1, R2)
) -> Idle:
    return idle(REPLICA, reports, [(router, "i") for router in heard], NOW + seconds)


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
    found = idle_after(100, *reports, heard=heard)
    assert isinstance(found, UnknownIdle)
    assert as_number(found) < 0


def test_unknown_has_no_order_with_durations() -> None:  # spec: T8
    with pytest.raises(TypeError):
        sorted([IdleFor(1.0), UnknownIdle("silent")])  # type: ignore[type-var]  # reason: that is the point


def test_what_an_earlier_start_of_a_router_told_says_nothing() -> None:  # spec: T8
    before = a_report(R1, since=0, used=60, incarnation="before", chunk=1, chunks=2)
    after = a_report(R1, since=90)
    assert idle_after(100, before, after, heard=(R1,)) == IdleFor(10.0, True)
    assert isinstance(idle_after(100, before, heard=(R1,)), UnknownIdle)


def test_a_part_of_what_a_router_saw_is_not_enough() -> None:  # spec: T8
    first, second = (a_report(R1, chunk=chunk, chunks=2) for chunk in (0, 1))
    assert isinstance(idle_after(100, first, heard=(R1,)), UnknownIdle)
    assert idle_after(100, first, second, heard=(R1,)) == IdleFor(100.0, True)


def test_a_report_that_is_being_cut_anew_is_not_enough() -> None:  # spec: T8
    one, two = (a_report(R1, chunk=chunk, chunks=2) for chunk in (0, 1))
    again, more = (a_report(R1, chunk=chunk, chunks=3) for chunk in (0, 2))
    assert isinstance(idle_after(100, two, again, more, heard=(R1,)), UnknownIdle)
    assert idle_after(100, two, one, heard=(R1,)) == IdleFor(100.0, True)
    shorter = a_report(R1, chunk=0, chunks=1)
    assert idle_after(100, two, shorter, heard=(R1,)) == IdleFor(100.0, True)


def test_two_processes_with_one_name_are_unknown_together() -> None:  # spec: T8
    heard = [(R1, "i"), (R1, "another")]
    assert isinstance(idle(REPLICA, [a_report(R1)], heard, NOW + 100), UnknownIdle)
