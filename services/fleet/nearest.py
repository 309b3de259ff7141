"""The known word that was probably meant. One rule for catalogs, settings and names of entities."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_BETWEEN = re.compile(r"[-_. ]")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """None: nothing is near. Case and what joins words do not count."""
    return next(iter(near(word, known, most=1)), None)


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The nearest first."""
    plain = {_plain(name): name for name in known}
    return [plain[found] for found in get_close_matches(_plain(word), plain, n=most, cutoff=0.7)]


def _plain(word: str) -> str:
    return _BETWEEN.sub("", word).lower()


def meant(word: str, known: Iterable[str]) -> str:
    """As a hint; empty: nothing is near."""
    found = nearest(word, known)
    return f"did you mean `{found}`?" if found else ""
