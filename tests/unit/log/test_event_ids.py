"""Ids that sort by time and never repeat."""

from uuid import UUID

from services.log.event_ids import new_event_id

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
