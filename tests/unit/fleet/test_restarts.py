import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import RestartPolicy
from services.fleet.restarts import JITTER, forgotten, pause

POLICY = RestartPolicy()


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (5000, 300.0)]
)
def test_doubles_from_a_second_to_five_minutes(failures: int, seconds: float) -> None:  # spec: R6
    assert pause(POLICY, failures, random.Random(1)) == pytest.approx(seconds, rel=JITTER)


@given(failures=st.integers(1, 100), seed=st.integers())
def test_jitter_stays_near_and_can_be_repeated(failures: int, seed: int) -> None:  # spec: R6
    first = pause(POLICY, failures, random.Random(seed))
    assert first == pause(POLICY, failures, random.Random(seed))
    assert 0.8 <= first <= 360.0


def test_two_that_failed_together_wait_differently() -> None:  # spec: R6
    source = random.Random(7)
    assert pause(POLICY, 5, source) != pause(POLICY, 5, source)


def test_failures_are_forgotten_after_ten_minutes_healthy() -> None:  # spec: R6
    assert not forgotten(POLICY, 599.9)
    assert forgotten(POLICY, 600.0)
