import msgspec
import pytest

from ctl.render import Column, counts, duration, encoded, size, table
from services.fleet.unseen import escaped

COLUMNS = (
    Column[tuple[str, int]]("NAME", lambda row: row[0]),
    Column[tuple[str, int]]("COUNT", lambda row: str(row[1]), right=True),
    Column[tuple[str, int]]("EXTRA", lambda row: "x" * row[1], wide=True),
)


def test_a_table_is_aligned_and_has_no_trailing_blanks() -> None:
    assert table([("a", 1), ("long", 200)], COLUMNS) == [
        "NAME  COUNT",
        "a         1",
        "long    200",
    ]


def test_wide_shows_the_columns_that_are_left_out_otherwise() -> None:
    assert table([("a", 2)], COLUMNS, wide=True) == [
        "NAME  COUNT  EXTRA",
        "a         2  xx",
    ]


def test_control_characters_cannot_steer_the_terminal() -> None:
    assert table([("a\x1b[31m\n", 1)], COLUMNS)[1].startswith(r"a\x1b[31m\x0a")
    assert escaped("Grüße, 模型") == "Grüße, 模型"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "-"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d"), (5e6, "58d")],
)
def test_an_unknown_duration_is_a_dash_and_zero_is_zero(seconds: float, text: str) -> None:
    # spec: T8
    assert duration(seconds) == text


def test_sizes_keep_a_readable_unit() -> None:
    assert [size(n) for n in (0, 1023, 1536, 3 << 30)] == ["0B", "1023B", "1.5KiB", "3GiB"]


def test_counts_name_what_there_is() -> None:
    assert counts({"ready": 2, "failed": 0, "pending": 1}) == "3: 1 pending, 2 ready"
    assert counts({}) == "0"


def test_a_frame_is_passed_on_with_what_this_version_does_not_know() -> None:
    body = b'{"kind":"NodeList","asOfSeq":7,"items":[{"node":"a"},{"node":"b"}],"new":[1]}'
    assert msgspec.json.decode(encoded(body, "json")) == msgspec.json.decode(body)
    assert msgspec.yaml.decode(encoded(body, "yaml")) == msgspec.json.decode(body)
    assert encoded(body, "jsonl").splitlines() == ['{"node":"a"}', '{"node":"b"}']


def test_a_frame_without_items_is_one_line_of_jsonl() -> None:
    assert encoded(b'{"kind": "Status", "asOfSeq": 7}', "jsonl") == '{"kind":"Status","asOfSeq":7}'
