"""Text measured as a terminal draws it: an ideograph or an emoji takes two columns, an accent none. Pure."""

import unicodedata
from collections.abc import Iterator

CUT = "…"


def width(text: str) -> int:
    """Columns that it takes; of text whose unseen characters are escaped."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """With blanks to so many columns."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def cut(text: str, columns: int) -> str:
    """No wider than `columns`, of which there is at least one; what is left out is told by a sign."""
    if width(text) <= columns:
        return text
    return _begin(text, columns - 1) + CUT


def wrapped(text: str, columns: int, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Lines of whole words, with their indents. A word alone may be too wide."""
    line, empty = first, True
    for word in text.split(" "):
        longer = line + word if empty else f"{line} {word}"
        if not empty and width(longer) > columns:
            yield line
            longer = rest + word
        line, empty = longer, False
    yield line


def _begin(text: str, columns: int) -> str:
    taken = 0
    for at, character in enumerate(text):
        taken += _columns(character)
        if taken > columns:
            return text[:at]
    return text


def _columns(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me") else 1
