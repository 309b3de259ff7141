"""Ids that sort by time and never repeat."""

from uuid import UUID

import pytest

from services.log.event_ids import made_at, new_event_id

NOW = 1796063777.5


def test_is_a_uuid_of_version_7() -> None:
    made = UUID(new_event_id(NOW))
    assert (made.version, made.variant) == (7, UUID(int=2 << 62).variant)
    assert made.int >> 80 == int(NOW * 1000)


def test_sorts_by_time() -> None:
    made = [new_event_id(NOW + second) for second in range(10)]
    assert made == sorted(made)


def test_never_repeats() -> None:
    assert len({new_event_id(NOW) for _ in range(10_000)}) == 10_000


def test_the_time_can_be_read_back_to_the_millisecond() -> None:
    assert made_at(new_event_id(1_796_000_000.1239)) == 1_796_000_000.123
    assert made_at(new_event_id(1_796_000_000.0) + "-record") == 1_796_000_000.0


@pytest.mark.parametrize("other", ["", "7-48202-1", "3f0ef1a4-6f0b-4c55-8d7e-0f4e8a1b2c3d"])
def test_other_ids_hold_no_time(other: str) -> None:
    assert made_at(other) is None
