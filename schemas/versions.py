"""Versions of documents: which one this program writes, and how an older one becomes it.

A new field with a default needs no new version: readers ignore what they do not know. A new *meaning*
does: the kind gets the next number here, and an upcaster that makes the new form out of the old one.
Upcasters are kept for as long as any log may hold the old form, and `tests/data/golden` holds a log of
each released version that is folded on every run (tests/unit/fleet/test_golden.py).

An event's `v` is the version of its document. A reader that is older than the writer sets the event
aside and decides nothing (`FleetState.halted`).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from schemas import codec
from schemas.documents import Document, Gone

FIRST = 1

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the builtins of one version, gives those of the next. Pure; may change what it is given."""

NEWEST: dict[type[Document], int] = {}
"""Kinds whose form has changed its meaning, and their newest version; all others are at `FIRST`."""
UPCASTERS: dict[tuple[type[Document], int], Upcaster] = {}
"""By kind and the version that is left behind."""

D = TypeVar("D", bound=Document)


def version_of(kind: type[Document]) -> int:
    """The version of this kind that this program writes, and the newest that it understands."""
    return NEWEST.get(kind, FIRST)


def from_older(data: msgspec.Raw, kind: type[D], version: int) -> D | Gone:
    """A document of an older version in today's form. Raises msgspec.DecodeError for anything else."""
    found: dict[str, Any] = codec.decode(data, dict[str, Any])
    if found.get("gone") is True:
        return msgspec.convert(found, Gone)
    for each in range(version, version_of(kind)):
        found = _next(found, kind, each)
    return msgspec.convert(found, kind)


def _next(found: dict[str, Any], kind: type[Document], version: int) -> dict[str, Any]:
    upcaster = UPCASTERS.get((kind, version))
    if upcaster is None:
        raise msgspec.ValidationError(f"{kind.__name__} never had a version {version}")
    try:
        return upcaster(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # What it was given is not what that version wrote.
        raise msgspec.ValidationError(
            f"no {kind.__name__} of version {version}: {error!r}"
        ) from error
