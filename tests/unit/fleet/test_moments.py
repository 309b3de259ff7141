from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.fleet.telling.moments import AtSequence, AtTime, moment, rfc3339_seconds, sequence
from services.fleet.units import Wrong

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC).timestamp()  # 13:00 in Berlin


def told(text: str, now: float = NOW) -> tuple[str, str]:
    """UTC and local of what the text means in Berlin."""
    found = moment(text, now, BERLIN)
    assert isinstance(found, AtTime), found
    return datetime.fromtimestamp(found.seconds, UTC).isoformat(), found.local


# spec: O5
@pytest.mark.parametrize(
    ("text", "utc", "local"),
    [
        ("03:12", "2026-11-30T02:12:00+00:00", "2026-11-30 03:12:00 CET"),
        ("13:30", "2026-11-29T12:30:00+00:00", "2026-11-29 13:30:00 CET"),
        ("3:12:07", "2026-11-30T02:12:07+00:00", "2026-11-30 03:12:07 CET"),
        ("yesterday 03:12", "2026-11-29T02:12:00+00:00", "2026-11-29 03:12:00 CET"),
        ("yesterday  3:12", "2026-11-29T02:12:00+00:00", "2026-11-29 03:12:00 CET"),
        ("today", "2026-11-29T23:00:00+00:00", "2026-11-30 00:00:00 CET"),
        ("2026-11-29 03:12", "2026-11-29T02:12:00+00:00", "2026-11-29 03:12:00 CET"),
        ("2026-11-29T03:12:05", "2026-11-29T02:12:05+00:00", "2026-11-29 03:12:05 CET"),
        ("2026-07-01", "2026-06-30T22:00:00+00:00", "2026-07-01 00:00:00 CEST"),
        ("2026-11-29T03:12:00Z", "2026-11-29T03:12:00+00:00", "2026-11-29 04:12:00 CET"),
        ("2026-11-29T03:12:00-05:00", "2026-11-29T08:12:00+00:00", "2026-11-29 09:12:00 CET"),
        ("2026-11-29T03:12:00.25Z", "2026-11-29T03:12:00.250000+00:00", "2026-11-29 04:12:00 CET"),
        ("2026-11-29t03:12:00z", "2026-11-29T03:12:00+00:00", "2026-11-29 04:12:00 CET"),
        ("2026-11-29t03:12", "2026-11-29T02:12:00+00:00", "2026-11-29 03:12:00 CET"),
        ("-2h", "2026-11-30T10:00:00+00:00", "2026-11-30 11:00:00 CET"),
        ("-1h30m", "2026-11-30T10:30:00+00:00", "2026-11-30 11:30:00 CET"),
        ("now", "2026-11-30T12:00:00+00:00", "2026-11-30 13:00:00 CET"),
    ],
)
def test_reads_moments_as_people_write_them(text: str, utc: str, local: str) -> None:
    assert told(text) == (utc, local)


@pytest.mark.parametrize("text", ["48203", "48,203", " 48_203 "])
def test_a_number_is_a_sequence(text: str) -> None:
    assert moment(text, NOW, BERLIN) == AtSequence(48203)


def test_of_a_time_that_the_clocks_show_twice_the_first_is_taken() -> None:
    assert told("2026-10-25 02:30")[1] == "2026-10-25 02:30:00 CEST"
    assert told("2026-10-25 03:30")[1] == "2026-10-25 03:30:00 CET"


def test_a_time_that_the_clocks_skip_is_refused() -> None:
    found = moment("2026-03-29 02:30", NOW, BERLIN)
    assert found == Wrong("the clocks skip 2026-03-29 02:30", "write `2026-03-29 03:30`")


def test_yesterday_is_a_day_of_the_calendar_where_the_day_has_25_hours() -> None:
    after = datetime(2026, 10, 26, 1, 0, tzinfo=UTC).timestamp()
    assert told("yesterday 01:00", after)[1] == "2026-10-25 01:00:00 CEST"


def test_a_zone_without_a_name_is_told_by_its_offset() -> None:
    found = moment("03:12", NOW, timezone(timedelta(hours=5, minutes=30)))
    assert isinstance(found, AtTime)
    assert found.local == "2026-11-30 03:12:00 UTC+05:30"


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "2026-13-01", "-2", "-off", "2026-11-29T25:00:00Z", "r3"]
)
def test_what_is_no_moment_says_how_to_write_one(text: str) -> None:
    found = moment(text, NOW, BERLIN)
    assert isinstance(found, Wrong)
    assert found.hint


TOKYO = ZoneInfo("Asia/Tokyo")
ZONES = st.sampled_from([BERLIN, TOKYO, UTC, timezone(timedelta(hours=-14))])
WORDS = st.lists(st.sampled_from(["today", "yesterday", "now", "-off", "0001-01-01", "12:00", "Z"]))


# spec: O5
@given(
    text=st.text()
    | st.from_regex(r"-?[0-9TtZz:_,.+ dhms-]{1,60}", fullmatch=True)
    | st.datetimes(timezones=ZONES).map(lambda time: time.isoformat())
    | st.datetimes().map(str)
    | WORDS.map(" ".join),
    zone=ZONES,
)
@example("9" * 5000, UTC)
@example("-" + "9" * 5000 + "d", UTC)
@example("9999-12-31T23:59:59.999999Z", TOKYO)
@example("0001-01-01", TOKYO)
@example("0001-01-01 00:00", BERLIN)
@example("0001-01-01T00:00:00+14:00", UTC)
@example("9999-12-31", timezone(timedelta(hours=-14)))
def test_whatever_is_written_is_a_moment_or_told_to_be_none(text: str, zone: tzinfo) -> None:
    match moment(text, NOW, zone):
        case AtTime(seconds, local):
            assert local
            assert datetime.fromtimestamp(seconds, UTC).year >= 1970
        case AtSequence(number):
            assert 0 < number < 2**63
        case Wrong(message, hint):
            assert message
            assert hint


@given(st.text() | st.datetimes(timezones=ZONES).map(lambda time: time.isoformat()))
@example("9" * 4400)
@example("9999-12-31T23:59:59.999999Z")
@example("\u0661\u0662")
def test_what_a_server_is_sent_is_a_sequence_or_a_time_or_neither(text: str) -> None:
    number, seconds = sequence(text), rfc3339_seconds(text)
    assert number is None or seconds is None
    assert number is None or text.isascii()


def test_a_time_without_a_zone_is_none_to_a_server() -> None:
    assert rfc3339_seconds("2026-11-29T03:12:00") is None
    assert rfc3339_seconds("1970-01-01t00:00:01z") == 1.0


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("-1", "write `-1m` for minutes, `-1h` for hours"),
        ("-1000000d", "write how long ago, for example `-90s`, `-15m`, `-2h` or `-3d`"),
        ("0", "the first one of a log is 1"),
    ],
)
def test_a_hint_can_be_followed(text: str, hint: str) -> None:
    found = moment(text, NOW, BERLIN)
    assert isinstance(found, Wrong)
    assert found.hint == hint
