"""The only constructor of a Catalog: for control, router and `catalog validate` alike.

Whatever becomes a catalog, from a file, the API, the log, a disk copy or a router's own
configuration, passes `from_yaml` or `from_json` and the same rules. No IO.

The parts: `catalog_yaml` and `catalog_tree` read text into one form with places; `catalog_check`,
`catalog_models`, `catalog_args` and `catalog_names` hold the rules, `catalog_engines` what each
engine can drive; `catalog_source` writes it back.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NoReturn

from msgspec import Raw, Struct

from schemas import codec
from schemas.catalog import EngineEnvironment, Model
from schemas.frames import Fault
from schemas.ids import EngineName, ModelName
from services.fleet.catalog_check import check
from services.fleet.catalog_source import digest, source_of
from services.fleet.catalog_tree import Entries, Faults, Node, TooManyFaults, read_json
from services.fleet.catalog_yaml import read_yaml, write_yaml

LARGEST_BYTES = 960 * 1024
"""Of the compact source: one message of the log holds it whole."""

REMEMBERED = 4
"""Catalogs that are not made again from the same bytes: one in force, and those that come and go."""

_KEY = object()


class CatalogFaults(Struct, frozen=True):
    """Why it is no catalog: every fault with its place."""

    faults: tuple[Fault, ...]


class Catalog:
    """An immutable, checked set of models. Made by `from_yaml` and `from_json` alone."""

    __slots__ = ("_engines", "_hash", "_models", "_names", "_source")

    def __init__(
        self,
        key: object,
        engines: Mapping[EngineName, EngineEnvironment],
        models: tuple[Model, ...],
    ) -> None:
        if key is not _KEY:
            _refuse()
        self._engines = MappingProxyType(dict(engines))
        self._models = MappingProxyType({model.name: model for model in models})
        self._names = {name: m for m in models for name in (m.name, *m.aliases)}
        self._source = codec.encode(source_of(engines, models))
        self._hash = digest(self._source)

    @property
    def models(self) -> Mapping[ModelName, Model]:
        """By name, in order of names."""
        return self._models

    @property
    def engines(self) -> Mapping[EngineName, EngineEnvironment]:
        """The named environments, and for each engine kind the one that bears its name."""
        return self._engines

    @property
    def hash(self) -> str:
        """sha256 of the canonical source: equal for files that mean the same."""
        return self._hash

    def resolve(self, name: str) -> Model | None:
        """The model that a client means by this name or alias."""
        return self._names.get(ModelName(name))

    def source(self) -> Raw:
        """Canonical JSON, from which `from_json` makes the same catalog again."""
        return Raw(self._source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._source == other._source

    def __repr__(self) -> str:
        return f"<Catalog {self._hash[:8]}: {', '.join(self._models)}>"

    def __hash__(self) -> int:
        return hash(self._source)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise TypeError("a Catalog is made by from_yaml or from_json alone")


def from_yaml(text: str | bytes, file: str = "") -> Catalog | CatalogFaults:
    """A catalog from the content of a file, whose name is for the places of faults."""
    faults = Faults(file)
    return _construct(lambda: read_yaml(text, faults), faults)


def from_json(raw: bytes | Raw) -> Catalog | CatalogFaults:
    """A catalog from the JSON of `Catalog.source`; faults have a path and no line.

    Takes a second where it is large, so whoever must not wait has it made beside the event loop
    before: the last few are remembered.
    """
    return _from_json(bytes(raw))


@lru_cache(maxsize=REMEMBERED)
def _from_json(source: bytes) -> Catalog | CatalogFaults:
    faults = Faults()
    return _construct(lambda: read_json(source, faults), faults)


def _construct(read: Callable[[], Node | None], faults: Faults) -> Catalog | CatalogFaults:
    try:
        return _made(read(), faults)
    except TooManyFaults:
        return CatalogFaults(faults.all())


def _made(root: Node | None, faults: Faults) -> Catalog | CatalogFaults:
    if root is None:
        return CatalogFaults(faults.all())
    engines, models = check(root, faults)
    if faults:
        return CatalogFaults(faults.all())
    catalog = Catalog(_KEY, engines, models)
    length = len(bytes(catalog.source()))
    if length > LARGEST_BYTES:
        message = f"the catalog has {length} bytes in compact form; {LARGEST_BYTES} at most"
        faults.add(root, message, "take out long args, or models that nobody asks for")
        return CatalogFaults(faults.all())
    return catalog


def show(catalog: Catalog) -> str:
    """YAML from which `from_yaml` makes the same catalog again."""
    return write_yaml(source_of(catalog.engines, catalog.models.values()))


def _empty() -> Catalog:
    engines, models = check(Entries(path="", entries={}), Faults())
    return Catalog(_KEY, engines, models)


EMPTY = _empty()
"""No model at all: what a fleet has before its first catalog."""
