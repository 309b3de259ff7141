import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.fleet.units import OFF, Wrong, duration, size, write_duration, write_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120s", 120.0),
        ("15m", 900.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("0", 0.0),
        ("0s", 0.0),
        ("off", OFF),
    ],
)
def test_reads_durations(text: str, seconds: float | str) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "300", "-5s", "5 s", "soon", "1e3s", "OFF", "\u0661s", "999999999d"]
)
def test_refuses_what_is_no_duration(text: str) -> None:
    assert isinstance(duration(text), Wrong)


def test_a_number_alone_is_asked_for_its_unit() -> None:
    assert duration("300") == Wrong(
        "`300` has no unit", "write `300s` for seconds, `300m` for minutes"
    )


@pytest.mark.parametrize(
    ("text", "number_bytes"),
    [
        ("70GiB", 70 << 30),
        ("512MiB", 512 << 20),
        ("4GB", 4 * 10**9),
        ("1.5GiB", 3 << 29),
        ("10 MiB", 10 << 20),
        ("17B", 17),
        ("0", 0),
    ],
)
def test_reads_sizes(text: str, number_bytes: int) -> None:
    assert size(text) == number_bytes


@pytest.mark.parametrize("text", ["", "70", "off", "-1GiB", "70gib", "1e3MiB", "99999999TiB"])
def test_refuses_what_is_no_size(text: str) -> None:
    assert isinstance(size(text), Wrong)


def test_a_bare_letter_is_asked_which_unit_it_means() -> None:
    assert size("70G") == Wrong(
        "`70G` has no unit known here", "write `70GiB`, or `70GB` for powers of ten"
    )


@given(st.integers(0, 10**10))
def test_a_written_duration_reads_as_the_same(milliseconds: int) -> None:
    assert duration(write_duration(milliseconds / 1000)) == milliseconds / 1000


def test_off_is_written_as_the_word() -> None:
    assert write_duration(None) == OFF


@given(st.integers(0, 2**60))
def test_a_written_size_reads_as_the_same(number_bytes: int) -> None:
    assert size(write_size(number_bytes)) == number_bytes
