from hypothesis import given
from hypothesis import strategies as st

from ctl.fitting import CUT, cut, padded, width, wrapped
from ctl.render import LEAST_PROSE, Column, table

TEXT = st.text(st.sampled_from("ab 模型👍é\u0301"))
ROWS = [("gpu-模型-1", "why " * 30, "12"), ("gpu-2", "", "3")]
COLUMNS = (
    Column[tuple[str, str, str]]("NODE", lambda row: row[0]),
    Column[tuple[str, str, str]]("WHY", lambda row: row[1], prose=True),
    Column[tuple[str, str, str]]("COUNT", lambda row: row[2], right=True),
)


def test_ideographs_and_emoji_take_two_columns_and_accents_none() -> None:
    assert [width(text) for text in ("abc", "模型", "👍", "e\u0301")] == [3, 4, 2, 1]


@given(TEXT, st.integers(1, 30))
def test_what_is_cut_fits_and_begins_as_it_did(text: str, columns: int) -> None:
    found = cut(text, columns)
    assert width(found) <= columns
    assert found == text or (found.endswith(CUT) and text.startswith(found[:-1]))
    assert width(padded(found, columns)) == width(padded(found, columns, right=True)) == columns


@given(TEXT, st.integers(4, 30))
def test_what_is_wrapped_is_all_there_and_fits_unless_one_word_does_not(
    text: str, columns: int
) -> None:
    lines = list(wrapped(text, columns, first="> ", rest="  "))
    assert " ".join(line[2:] for line in lines) == text
    for line in lines:
        assert width(line) <= columns or " " not in line[2:].strip()


def test_prose_gives_way_and_a_name_never() -> None:
    for room in (60, 40):
        lines = table(ROWS, COLUMNS, room=room)
        assert {width(line) for line in lines} == {room}
        assert lines[1].startswith("gpu-模型-1  why")
    narrow = table(ROWS, COLUMNS, room=10)
    assert width(narrow[1]) == width("gpu-模型-1") + LEAST_PROSE + len("COUNT") + 4


def test_nothing_is_shortened_where_there_is_room_or_everything_is_asked_for() -> None:
    for lines in (table(ROWS, COLUMNS), table(ROWS, COLUMNS, room=10, wide=True)):
        assert ("why " * 30) in lines[1]
