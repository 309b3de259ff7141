"""The known word that was probably meant. One rule for catalogs, settings and names of entities."""

import heapq
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import takewhile

MOST_LOOKED_AT = 1000
"""Names that are compared letter by letter, which takes 30 to 200 us each."""
_BETWEEN = re.compile(r"[-_. ]")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """None: nothing is near. Case and what joins words do not count."""
    return next(iter(near(word, known, most=1)), None)


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The nearest first."""
    plain = {_plain(name): name for name in known}
    meant = _plain(word)
    likely = plain if len(plain) <= MOST_LOOKED_AT else _likely(meant, plain)
    return [plain[found] for found in get_close_matches(meant, likely, n=most, cutoff=0.7)]


def _likely(word: str, names: Iterable[str]) -> list[str]:
    """Of very many: one slip leaves one half of a word as it is."""
    half = max(1, len(word) // 2)
    begin, end = word[:half], word[-half:]
    found = [name for name in names if name.startswith(begin) or name.endswith(end)]
    return heapq.nlargest(MOST_LOOKED_AT, found, lambda name: _shared(word, name))


def _shared(one: str, other: str) -> int:
    """Letters that both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in same)


def _plain(word: str) -> str:
    return _BETWEEN.sub("", word).lower()


def meant(word: str, known: Iterable[str]) -> str:
    """As a hint; empty: nothing is near."""
    found = nearest(word, known)
    return f"did you mean `{found}`?" if found else ""
