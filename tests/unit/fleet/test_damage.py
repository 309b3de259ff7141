from schemas import codec
from schemas.ids import LogId
from services.fleet.damage import Seen, damage, read_seen
from tests.builders import LOG_ID, a_genesis

SEEN = Seen(LOG_ID, 40)
OTHER = LogId("f" * 32)


def test_a_program_that_has_seen_no_log_accepts_the_one_it_finds() -> None:
    assert damage(None, a_genesis(), 7) is None
    assert damage(None, None, 0) is None


def test_the_same_log_at_or_above_what_was_seen_is_whole() -> None:
    assert damage(SEEN, a_genesis(), 40) is None
    assert damage(SEEN, a_genesis(), 4000) is None


def test_a_missing_shortened_or_replaced_log_is_damage() -> None:
    assert "is gone" in (damage(SEEN, None, 0) or "")
    assert "shortened" in (damage(SEEN, a_genesis(), 39) or "")
    assert "another log" in (damage(SEEN, a_genesis(OTHER), 400) or "")


def test_a_recovery_names_the_log_that_it_replaces() -> None:
    assert damage(SEEN, a_genesis(OTHER, parent=LOG_ID), 2) is None
    assert damage(SEEN, a_genesis(OTHER, parent=LogId("e" * 32)), 2) is not None


def test_a_torn_disk_copy_counts_as_none() -> None:
    assert read_seen(None) is None
    assert read_seen(b'{"log": "01') is None
    assert read_seen(codec.encode(SEEN)) == SEEN
