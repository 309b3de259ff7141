from services.router.breaker import FAILURES, OPEN_SECONDS, Breaker


def a_broken_one(now: float = 100.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(now, "refused")
    return breaker


def test_opens_after_five_failures_in_a_row() -> None:
    """# spec: T6"""
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        breaker.failed(1.0, "refused")
        assert breaker.allows(1.0)
    breaker.failed(1.0, "refused")
    assert not breaker.allows(1.0)
    assert breaker.reason == "refused"


def test_a_success_between_starts_the_count_anew() -> None:
    """# spec: T6"""
    breaker = Breaker()
    for _ in range(20):
        breaker.failed(1.0, "reset")
        breaker.succeeded()
        breaker.failed(1.0, "reset")
    assert breaker.phase(1.0) == "closed"


def test_after_ten_seconds_one_request_probes() -> None:
    """# spec: T6"""
    breaker = a_broken_one(100.0)
    assert not breaker.allows(100.0 + OPEN_SECONDS - 0.1)
    now = 100.0 + OPEN_SECONDS
    assert breaker.allows(now)
    assert breaker.begin(now)
    assert not breaker.allows(now)
    assert not breaker.begin(now)


def test_a_good_probe_closes_and_a_bad_one_opens_anew() -> None:
    """# spec: T6"""
    now = 100.0 + OPEN_SECONDS
    good = a_broken_one(100.0)
    probe = good.begin(now)
    good.succeeded()
    good.end(probe)
    assert good.phase(now) == "closed"
    bad = a_broken_one(100.0)
    probe = bad.begin(now)
    bad.failed(now, "reset")
    bad.end(probe)
    assert not bad.allows(now + OPEN_SECONDS - 0.1)
    assert bad.allows(now + OPEN_SECONDS)


def test_a_probe_whose_client_left_frees_the_place_for_another() -> None:
    """# spec: T6"""
    now = 100.0 + OPEN_SECONDS
    breaker = a_broken_one(100.0)
    breaker.end(breaker.begin(now))
    assert breaker.allows(now)


def test_the_end_of_another_request_does_not_free_the_probes_place() -> None:
    now = 100.0 + OPEN_SECONDS
    breaker = a_broken_one(100.0)
    assert breaker.begin(now)
    breaker.end(probe=False)
    assert not breaker.allows(now)
