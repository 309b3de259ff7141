"""What a request names, held against what its route takes. Pure.

Nothing that was asked for is left out without a word: an answer to half of a question looks like one
to the whole.
"""

from collections.abc import Iterable, Iterator, Mapping

from schemas.api import LONGEST_WORD, Route


def fault(route: Route, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> str:
    """Why it cannot be answered; empty: it can. `path`: the names in it."""
    given = list(query)
    return next(_faults(route, [*path.items(), *given], [name for name, _ in given]), "")


def _faults(route: Route, words: Iterable[tuple[str, str]], names: Iterable[str]) -> Iterator[str]:
    known, seen = route.takes, set[str]()
    for name in names:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no parameter"
            yield f"`{name[:40]}` is not known: {route.name} {takes}"
        if name in seen:
            yield f"{name} is given twice"
        seen.add(name)
    for name, text in words:
        if len(text) > LONGEST_WORD:
            yield f"{name} has {len(text)} characters; {LONGEST_WORD} at most"
