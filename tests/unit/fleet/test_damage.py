from schemas import codec
from schemas.ids import LogId
from services.fleet.damage import Found, Seen, damage, read_seen
from tests.builders import LOG_ID, a_genesis

SEEN = Seen(LOG_ID, 40)
OTHER = LogId("f" * 32)


def test_a_program_that_has_seen_no_log_accepts_the_one_it_finds() -> None:
    assert damage(Found(a_genesis(), 7)) is None
    assert damage(Found(None, 0)) is None


def test_the_same_log_at_or_above_what_was_seen_is_whole() -> None:
    assert damage(Found(a_genesis(), 40, seen=SEEN)) is None
    assert damage(Found(a_genesis(), 4000, seen=SEEN)) is None


def test_a_missing_shortened_or_replaced_log_is_damage() -> None:
    assert "is gone" in (damage(Found(None, 0, seen=SEEN)) or "")
    assert "shortened" in (damage(Found(a_genesis(), 39, seen=SEEN)) or "")
    assert "another log" in (damage(Found(a_genesis(OTHER), 400, seen=SEEN)) or "")


def test_a_genesis_that_cannot_be_read_is_another_fault_than_none() -> None:
    for seen in (None, SEEN):
        assert "cannot be read: why" in (damage(Found(None, 40, unreadable="why", seen=seen)) or "")


def test_a_stream_that_is_not_there_is_damage_to_who_knew_one() -> None:
    assert "no LOG; log 0" in (damage(Found(None, 0, missing="no LOG", seen=SEEN)) or "")
    assert damage(Found(None, 0, missing="no LOG")) is None


def test_a_recovery_names_the_log_that_it_replaces() -> None:
    assert damage(Found(a_genesis(OTHER, parent=LOG_ID), 2, seen=SEEN)) is None
    assert damage(Found(a_genesis(OTHER, parent=LogId("e" * 32)), 2, seen=SEEN)) is not None


def test_a_torn_disk_copy_counts_as_none() -> None:
    assert read_seen(None) is None
    assert read_seen(b'{"log": "01') is None
    assert read_seen(codec.encode(SEEN)) == SEEN


def test_a_log_that_was_shortened_and_has_grown_again_is_told_by_its_newest_message() -> None:
    # spec: L1
    seen = Seen(LOG_ID, 40, stamp=100.0)
    assert damage(Found(a_genesis(), 60, seen=seen, stamp=100.0)) is None
    assert damage(Found(a_genesis(), 60, seen=seen)) is None  # LOG's age has taken it.
    reason = damage(Found(a_genesis(), 60, seen=seen, stamp=101.0))
    assert reason is not None
    assert "another message at 40" in reason


def test_who_slept_through_two_recoveries_moves_over() -> None:
    genesis = a_genesis(OTHER, parent=LogId("e" * 32), ancestors=(LogId("e" * 32), LOG_ID))
    assert damage(Found(genesis, 2, seen=SEEN)) is None
