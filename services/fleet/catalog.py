"""The only constructor of a Catalog: for control, router and `catalog validate` alike.

Everything that becomes a catalog, from a file, the API, the log, a disk copy or a router's own
configuration, passes `from_yaml` or `from_json` and the same rules. It does no IO.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from msgspec import Raw, Struct

from schemas.api import Fault
from schemas.catalog import EngineEnvironment, Model
from schemas.ids import EngineName, ModelName


class CatalogFaults(Struct, frozen=True):
    """Why it is no catalog: every fault with its place."""

    faults: tuple[Fault, ...]


class Catalog:
    """An immutable, checked set of models. Made by `from_yaml` and `from_json` alone."""

    __slots__ = ("_engines", "_hash", "_models", "_names", "_source")

    _engines: Mapping[EngineName, EngineEnvironment]
    _hash: str
    _models: Mapping[ModelName, Model]
    _names: Mapping[str, Model]
    _source: bytes

    def __init__(self) -> None:
        raise TypeError("a Catalog is made by from_yaml or from_json")

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
        return self._names.get(name)

    def source(self) -> Raw:
        """Canonical JSON, from which `from_json` makes the same catalog again."""
        return Raw(self._source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self._source == other._source

    def __hash__(self) -> int:
        return hash(self._source)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Catalog is made by from_yaml or from_json")


def from_yaml(text: str | bytes, file: str = "") -> Catalog | CatalogFaults:
    """A catalog from the text of a file; `file` only names it in faults."""
    raise NotImplementedError


def from_json(raw: bytes | Raw) -> Catalog | CatalogFaults:
    """A catalog from the JSON of `Catalog.source`; faults have a path and no line."""
    raise NotImplementedError


def show(catalog: Catalog) -> str:
    """YAML from which `from_yaml` makes the same catalog again."""
    raise NotImplementedError


def _empty() -> Catalog:
    catalog = object.__new__(Catalog)
    catalog._engines, catalog._models, catalog._names = (MappingProxyType({}) for _ in range(3))
    catalog._hash, catalog._source = "", b'{"models":{}}'
    return catalog


EMPTY = _empty()
