from collections import Counter
from random import Random

from schemas.beats import EngineLoad
from schemas.catalog import Model
from services.router.breaker import FAILURES, OPEN_SECONDS
from services.router.endpoints import Live, Route, Target, key_of
from services.router.pick import FRESH_SECONDS, SCAN_LIMIT, pick, score
from tests.builders import a_model
from tests.support.router import an_endpoint

NOW = 1000.0


def a_route(
    name: str,
    *,
    in_flight: int = 0,
    load: EngineLoad | None = None,
    at: float = NOW,
    node: str = "",
    failed_at: float | None = None,
) -> Route:
    endpoint = an_endpoint("127.0.0.1:1", name, node=node)
    route = Route(key_of(endpoint), endpoint, Live())
    route.live.in_flight = in_flight
    if load is not None:
        route.live.loaded(load, at)
    if failed_at is not None:
        for _ in range(FAILURES):
            route.live.breaker.failed(failed_at, "refused")
    return route


def a_target(*first: Route, last: tuple[Route, ...] = ()) -> Target:
    model: Model = a_model()
    target = Target(model)
    target.first, target.last = first, last
    return target


def chosen(target: Target, *tried: Route, times: int = 200, now: float = NOW) -> Counter[str]:
    chance = Random(1)
    picked = (pick(target, tried, now, chance) for _ in range(times))
    return Counter("none" if route is None else route.key.replica for route in picked)


def test_the_least_loaded_by_own_count() -> None:
    """# spec: T3"""
    busy, idle = a_route("a", in_flight=3), a_route("b", in_flight=2)
    assert chosen(a_target(busy, idle)) == {"b": 200}


def test_others_requests_and_the_queue_count_where_known() -> None:
    """# spec: T3"""
    quiet = a_route("a", in_flight=1, load=EngineLoad(running=1, waiting=0))
    crowded = a_route("b", in_flight=0, load=EngineLoad(running=4, waiting=0))
    queued = a_route("c", in_flight=0, load=EngineLoad(running=0, waiting=5))
    assert chosen(a_target(quiet, crowded, queued)) == {"a": 200}


def test_a_full_cache_loses_against_an_empty_one() -> None:
    """# spec: T3"""
    full, empty = (a_route(n, load=EngineLoad(kv_usage=u)) for n, u in (("a", 0.9), ("b", 0.1)))
    assert chosen(a_target(full, empty)) == {"b": 200}


def test_an_unknown_figure_is_never_taken_for_nothing() -> None:
    """# spec: T3"""
    unknown = a_route("a")
    light = a_route("b", load=EngineLoad(running=2))
    heavy = a_route("c", load=EngineLoad(running=8))
    assert score([unknown, light, heavy], NOW) == [5.0, 2.0, 8.0]
    assert chosen(a_target(unknown, light, heavy)) == {"b": 200}


def test_a_stale_figure_is_unknown() -> None:
    """# spec: T3"""
    stale = a_route("a", load=EngineLoad(running=50), at=NOW - FRESH_SECONDS - 1)
    fresh = a_route("b", load=EngineLoad(running=4), at=NOW)
    assert score([stale, fresh], NOW) == [4.0, 4.0]


def test_own_counts_suffice() -> None:
    """# spec: T3"""
    assert score([a_route("a", in_flight=2), a_route("b")], NOW) == [2.0, 0.0]


def test_own_requests_are_not_counted_twice() -> None:
    route = a_route("a", in_flight=3, load=EngineLoad(running=5))
    route.live.in_flight = 1  # Two of ours have ended since.
    assert score([route, a_route("b", load=EngineLoad(running=0))], NOW) == [3.0, 0.0]


def test_equals_are_drawn_by_lot_and_repeatably() -> None:
    """# spec: T3"""
    target = a_target(*(a_route(name) for name in "abcd"))
    drawn = chosen(target)
    assert drawn == chosen(target)
    assert min(drawn.values()) > 20
    assert len(drawn) == 4


def test_the_last_choice_only_when_no_other_can_serve() -> None:
    """# spec: R2"""
    far = a_route("far")
    near = a_route("near", in_flight=100)
    assert chosen(a_target(near, last=(far,))) == {"near": 200}
    assert chosen(a_target(near, last=(far,)), near) == {"far": 200}
    assert chosen(a_target(last=(far,))) == {"far": 200}


def test_an_open_breaker_is_passed_over() -> None:
    """# spec: T6"""
    broken, well = a_route("a", failed_at=NOW), a_route("b", in_flight=9)
    assert chosen(a_target(broken, well)) == {"b": 200}
    assert chosen(a_target(broken, well), now=NOW + OPEN_SECONDS)["a"] == 200


def test_if_all_are_open_the_one_that_failed_longest_ago_stays_in_use() -> None:
    """# spec: T6"""
    older, newer = a_route("a", failed_at=NOW - 2), a_route("b", failed_at=NOW - 1)
    assert chosen(a_target(newer, older)) == {"a": 200}
    assert chosen(a_target(newer), older) == {"b": 200}


def test_never_the_same_endpoint_twice() -> None:
    """# spec: T5"""
    a, b = a_route("a"), a_route("b", in_flight=50)
    assert chosen(a_target(a, b), a) == {"b": 200}
    assert chosen(a_target(a, b), a, b) == {"none": 200}
    assert chosen(a_target()) == {"none": 200}


def test_a_second_attempt_goes_to_another_node_if_there_is_one() -> None:
    """# spec: R3"""
    tried, beside = a_route("a", node="n1"), a_route("b", node="n1")
    elsewhere = a_route("c", node="n2", in_flight=50)
    assert chosen(a_target(tried, beside, elsewhere), tried) == {"c": 200}
    assert chosen(a_target(tried, beside), tried) == {"b": 200}


def test_among_many_a_good_one_of_a_few_is_found_and_a_lone_healthy_one_too() -> None:
    """# spec: T7"""
    many = [a_route(f"r{n}", in_flight=n) for n in range(10 * SCAN_LIMIT)]
    drawn = chosen(a_target(*many), times=400)
    assert sum(count for name, count in drawn.items() if int(name[1:]) < 80) > 380
    broken = [a_route(f"r{n}", failed_at=NOW) for n in range(10 * SCAN_LIMIT)]
    assert chosen(a_target(*broken, a_route("well"))) == {"well": 200}
