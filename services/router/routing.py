"""From documents of the log to the table. Pure.

Documents come in any order, twice or late; the newest of each subject counts. A catalog takes effect
once its pointer and its revision are both there, agree and pass the constructor; until then, and when
it is refused, the one before serves on. What the table held before the log spoke (a seed from the
router's own configuration, or what another log had said) serves until a catalog and its endpoints
are here whole, and is then replaced whole.
"""

from msgspec import Raw, Struct

from schemas import subjects
from schemas.documents import CatalogRevision
from schemas.ids import LogId
from services.fleet.catalog import Catalog, CatalogFaults, from_json
from services.fleet.catalog_source import digest
from services.fleet.damage import Seen
from services.fleet.state import FleetState
from services.router.endpoints import Table

PATTERNS = (
    subjects.GENESIS,
    subjects.CATALOG,
    subjects.ALL_REVISIONS,
    subjects.ALL_ENDPOINTS,
)
_REVISIONS_ROOT = subjects.ALL_REVISIONS.removesuffix("*")
_ENDPOINTS_ROOT = subjects.ALL_ENDPOINTS.removesuffix(">")


_NO_CATALOG = Raw(b"null")


class Document(Struct, frozen=True, gc=False):
    """A stored message as it is kept on disk."""

    sequence: int
    subject: str
    payload: str


class Copy(Struct, frozen=True, kw_only=True):
    """What a router needs to serve without a log."""

    seen: Seen | None
    revision: int = 0
    catalog: Raw = _NO_CATALOG
    """Of the revision in effect: a newer one may stand in the documents, refused."""
    documents: tuple[Document, ...] = ()


class Routing:
    """The documents of one log, and the table kept in step with them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.revision = 0
        """Of the catalog in effect; 0: it is not this log's."""
        self.refused: tuple[str, ...] = ()
        """Why the log's current catalog is not in effect."""
        self.settled = False
        """The table holds what this log says."""
        self._state = FleetState()
        self._catalog: Catalog | None = None
        self._kept: dict[str, Document] = {}

    @property
    def log_id(self) -> LogId | None:
        """Of the log whose documents these are."""
        return self._state.log_id

    @property
    def highest(self) -> int:
        """LOG sequence of the newest document."""
        return self._state.sequence

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Subjects whose newest document cannot be used; the one before serves on."""
        return tuple(sorted({*self._state.unreadable, *self._state.unknown}))

    def apply(self, sequence: int, subject: str, payload: bytes) -> bool:
        """One document; old and unreadable ones have no effect. Whether it had one."""
        before = self._state.held(subject)
        self._state.apply(sequence, subject, payload)
        held = self._state.held(subject)
        if held is None or held is before:
            return False
        self._kept[subject] = Document(sequence, subject, payload.decode())
        if subject.startswith(_ENDPOINTS_ROOT):
            self._put_endpoints(subject)
        else:
            self._put_catalog()
        return True

    def settle(self) -> bool:
        """All that the log has is applied: the table is now its. False: it has no catalog yet."""
        if self._catalog is None:
            return False
        if not self.settled:
            self.settled = True
            endpoints = self._state.endpoints.items()
            self.table.replace(self._catalog, {key: held.document for key, held in endpoints})
        return True

    def wanted(self) -> tuple[str, ...]:
        """Subjects that the table is made of, as far as is known by now."""
        pointer = self._state.catalog.get(())
        models = () if self._catalog is None else tuple(self._catalog.models)
        found = {subjects.GENESIS: None, subjects.CATALOG: None}
        if pointer is not None:
            found[subjects.catalog_revision(pointer.document.revision)] = None
        for model in models:
            found[subjects.endpoints(model, 0)] = None
        for key, held in self._state.endpoints.items():
            found[_ENDPOINTS_ROOT + ".".join(key)] = None
            for shard in range(held.document.shards):
                found[subjects.endpoints(held.document.model, shard)] = None
        return tuple(found)

    def copy(self, seen: Seen | None) -> Copy:
        """What to keep on disk."""
        pointer = self._state.catalog.get(())
        current = "" if pointer is None else subjects.catalog_revision(pointer.document.revision)
        return Copy(
            seen=seen,
            revision=self.revision,
            catalog=_NO_CATALOG if self._catalog is None else self._catalog.source(),
            documents=tuple(
                document
                for subject, document in sorted(self._kept.items())
                if subject == current or not subject.startswith(_REVISIONS_ROOT)
            ),
        )

    def restore(self, copy: Copy) -> bool:
        """Serve from what was kept on disk. False: it holds no catalog that can be used."""
        catalog = from_json(copy.catalog)
        if not isinstance(catalog, Catalog):
            return False
        self._catalog, self.revision = catalog, copy.revision
        for document in copy.documents:
            self.apply(document.sequence, document.subject, document.payload.encode())
        return self.settle()

    def _put_endpoints(self, subject: str) -> None:
        key = tuple(subject.removeprefix(_ENDPOINTS_ROOT).split("."))
        held = self._state.endpoints.get(key)
        if self.settled:
            self.table.put(key, None if held is None else held.document)

    def _put_catalog(self) -> None:
        found = self._current()
        if found is None:
            return
        if found.revision == self.revision:
            self.refused = ()
            return
        if digest(bytes(found.source)) != found.hash:
            self.refused = (f"what stands as revision {found.revision} is not what was applied",)
            return
        catalog = from_json(found.source)
        if isinstance(catalog, CatalogFaults):
            self.refused = tuple(f"{fault.path}: {fault.message}" for fault in catalog.faults)
            return
        self.refused, self._catalog, self.revision = (), catalog, found.revision
        if self.settled:
            self.table.set_catalog(catalog)

    def _current(self) -> CatalogRevision | None:
        """The revision that the pointer names, if it is here."""
        pointer = self._state.catalog.get(())
        if pointer is None:
            return None
        wanted = pointer.document
        held = self._state.revisions.get((str(wanted.revision % subjects.REVISION_SLOTS),))
        if held is None or held.document.revision != wanted.revision:
            return None
        return held.document if held.document.hash == wanted.hash else None
