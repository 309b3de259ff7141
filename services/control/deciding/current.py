"""The current catalog, out of the state. One value per swap; pure but for what it remembers."""

from collections.abc import Iterable

from msgspec import Raw, Struct

from schemas import subjects
from schemas.documents import CatalogPointer, CatalogRevision
from services.fleet.catalog import EMPTY, Catalog, CatalogFaults, from_json
from services.fleet.catalog_source import digest
from services.fleet.state import FleetState, Held
from services.fleet.telling.happened import happened


class Current(Struct, frozen=True):
    """`refused` not empty: the log's catalog cannot be used, and `catalog` is the last one that could."""

    revision: int
    catalog: Catalog
    refused: str = ""


class CurrentCatalog:
    """Reads the pointer and its revision; makes a catalog only when they have changed."""

    def __init__(self) -> None:
        self._current = Current(0, EMPTY)
        self._made_from: object = None

    def read(self, state: FleetState) -> Current:
        """The catalog that everything of one operation uses."""
        pointer = state.catalog.get(())
        revision = None if pointer is None else find_revision(state, pointer.document.revision)
        source = (
            None if pointer is None else pointer.sequence,
            None if revision is None else revision.sequence,
            subjects.CATALOG in state.unreadable,
        )
        if source != self._made_from:
            self._made_from = source
            self._current = self._make(state, revision)
        return self._current

    def _make(self, state: FleetState, revision: Held[CatalogRevision] | None) -> Current:
        pointer = state.catalog.get(())
        if subjects.CATALOG in state.unreadable:
            return self._refused(0, "the catalog pointer cannot be read")
        if pointer is None:
            return Current(0, EMPTY)
        number, wanted = pointer.document.revision, pointer.document.hash
        if revision is None or revision.document.hash != wanted:
            return self._refused(number, f"revision {number} is not in the log")
        if digest(bytes(revision.document.source)) != wanted:
            return self._refused(
                number, f"what stands as revision {number} is not what was applied"
            )
        made = from_json(revision.document.source)
        if isinstance(made, CatalogFaults):
            first = made.faults[0]
            return self._refused(
                number,
                f"this version refuses catalog revision {number}: {first.path} {first.message}",
            )
        return Current(number, made)

    def _refused(self, revision: int, reason: str) -> Current:
        return Current(revision, self._current.catalog, reason)


def find_revision(state: FleetState, revision: int) -> Held[CatalogRevision] | None:
    """A revision that is still kept and readable."""
    subject = subjects.catalog_revision(revision)
    if subject in state.unreadable:
        return None
    held = state.held(subject)
    if held is None or not isinstance(held.document, CatalogRevision):
        return None
    return held if held.document.revision == revision else None


def source_ahead(state: FleetState, messages: Iterable[tuple[str, bytes]]) -> Raw | None:
    """Of the catalog that is in force once these are folded, in their order; None: it stays as it is."""
    found = [
        happened(0, subject, payload).document
        for subject, payload in messages
        if subject.startswith(subjects.CATALOG)
    ]
    pointers = [each for each in found if isinstance(each, CatalogPointer)]
    held = state.catalog.get(())
    pointer = pointers[-1] if pointers else None if held is None else held.document
    if not found or pointer is None:
        return None
    for each in reversed(found):
        if isinstance(each, CatalogRevision) and each.revision == pointer.revision:
            return each.source
    kept = find_revision(state, pointer.revision)
    return None if kept is None else kept.document.source


def next_revision(state: FleetState) -> int:
    """A number that no revision has had, also where the pointer cannot be read."""
    pointer = state.catalog.get(())
    kept = [held.document.revision for held in state.revisions.values()]
    return max([0 if pointer is None else pointer.document.revision, *kept], default=0) + 1
