import pytest

from services.fleet.unseen import escaped, unseen


@pytest.mark.parametrize("text", ["", "Grüße, 模型", "a — b…", "😀", "ü", "r-1: 3 of 4"])
def test_what_is_seen_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text
    assert not unseen(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31m\n", r"a\x1b[31m\x0a"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\u2028\u2029\u200b\ufeff\u00ad", r"\u2028\u2029\u200b\ufeff\xad"),
        ("\ue000", r"\ue000"),  # Private use.
        ("\u0378\U000e0041", r"\u0378\U000e0041"),  # Not assigned; a tag.
        ("\ud800", r"\ud800"),
        ("\u3164\ufe0f\u00a0", r"\u3164\ufe0f\xa0"),  # A filler, a selector, a blank unlike ours.
    ],
)
def test_what_nobody_sees_is_shown_by_its_number(text: str, shown: str) -> None:
    # spec: O1
    assert escaped(f"x{text}y") == f"x{shown}y"


def test_a_value_may_not_hold_what_nobody_sees() -> None:
    assert unseen("fine\u202eenif") == "holds the character U+202E, which nobody sees"
    assert "U+000A" in unseen("two\nlines")
    assert "U+D800" in unseen("\ud800")
