"""A router's own configuration: a catalog and a list of endpoints, from two files' text. Pure.

The list is YAML: `- {model: tiny, address: "127.0.0.1:8080", engine: llamacpp}`, where `engine` names
an engine kind or one of the catalog's environments and `metrics` may map figures to names, as in a
catalog. Either file with a fault and both are refused, so that half a change is none.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from schemas.catalog import EngineEnvironment
from schemas.documents import Endpoint, EndpointShard
from schemas.frames import Fault
from schemas.ids import EngineName, ModelName, NodeId, ReplicaId, token
from services.fleet.catalog import Catalog, CatalogFaults, from_yaml
from services.fleet.catalog_metrics import read_metrics
from services.fleet.catalog_tree import Entries, Faults, Items, Node, Scalar, TooManyFaults, place
from services.fleet.catalog_yaml import read_yaml
from services.fleet.nearest import meant
from services.router.endpoints import ShardKey

_KEYS = ("model", "address", "engine", "metrics")
_INCARNATION = "static"


class Seed(Struct, frozen=True):
    """What the router may serve from by itself."""

    catalog: Catalog
    endpoints: tuple[tuple[ModelName, Endpoint], ...]

    def shards(self, ailing: frozenset[str] = frozenset()) -> dict[ShardKey, EndpointShard]:
        """As documents of the log would say it. `ailing` addresses are the last choice."""
        found: dict[ModelName, list[Endpoint]] = {}
        for model, endpoint in self.endpoints:
            ill = endpoint.address in ailing
            found.setdefault(model, []).append(structs.replace(endpoint, last_choice=ill))
        return {
            (token(model), "00"): EndpointShard(
                model=model, shard=0, shards=1, endpoints=tuple(listed)
            )
            for model, listed in found.items()
        }


def read_seed(
    catalog: bytes, endpoints: bytes, catalog_file: str = "", endpoints_file: str = ""
) -> Seed | tuple[Fault, ...]:
    """Both texts as one value, or every fault of both."""
    made = from_yaml(catalog, catalog_file)
    faults = Faults(endpoints_file)
    listed = _listed(endpoints, made, faults)
    if isinstance(made, CatalogFaults):
        return (*made.faults, *faults.all())
    return faults.all() if faults else Seed(made, listed)


def _listed(
    endpoints: bytes, made: Catalog | CatalogFaults, faults: Faults
) -> tuple[tuple[ModelName, Endpoint], ...]:
    try:
        root = _tree(endpoints, faults)
        if root is None or isinstance(made, CatalogFaults):
            return ()
        return _List(made, faults).read(root)
    except TooManyFaults:
        return ()


def _tree(endpoints: bytes, faults: Faults) -> Node | None:
    if endpoints.strip():
        return read_yaml(endpoints, faults)
    faults.add_at(1, 1, "this is empty", "a list without endpoints is `[]`")
    return None


class _List:
    def __init__(self, catalog: Catalog, faults: Faults) -> None:
        self._catalog = catalog
        self._faults = faults
        self._seen: dict[tuple[ModelName, str], Entries] = {}

    def read(self, root: Node) -> tuple[tuple[ModelName, Endpoint], ...]:
        if not isinstance(root, Items):
            self._faults.add(root, "endpoints are a list", "write `- {model: …, address: …}`")
            return ()
        read = (self._entry(item) for item in root.items)
        return tuple(entry for entry in read if entry is not None)

    def _entry(self, node: Node) -> tuple[ModelName, Endpoint] | None:
        if not isinstance(node, Entries):
            self._faults.add(node, "an endpoint is a mapping", f"its keys: {', '.join(_KEYS)}")
            return None
        for name, entry in node.entries.items():
            if name not in _KEYS:
                self._faults.add(entry.key, f"unknown key `{name}`", meant(name, _KEYS))
        model, address = self._model(node), self._address(node)
        engine, metrics = self._engine(node), self._metrics(node)
        if model is None or address is None or engine is None:
            return None
        first = self._seen.setdefault((model, address), node)
        if first is not node:
            self._faults.add(node, f"`{address}` serves `{model}` already ({place(first)})")
        return model, Endpoint(
            replica=ReplicaId(f"{token(model)}@{address}"),
            incarnation=_INCARNATION,
            address=address,
            node=NodeId(address.rpartition(":")[0]),
            kind=engine.kind,
            metrics=engine.metrics if metrics is None else metrics,
        )

    def _text(self, node: Entries, key: str) -> Scalar | None:
        entry = node.entries.get(key)
        if entry is None:
            self._faults.add(node, f"`{key}` is missing")
            return None
        if not isinstance(entry.value, Scalar) or entry.value.blank:
            self._faults.add(entry.value, f"`{key}` is one word")
            return None
        return entry.value

    def _model(self, node: Entries) -> ModelName | None:
        word = self._text(node, "model")
        if word is None:
            return None
        models = self._catalog.models
        if ModelName(word.text) not in models:
            message = f"the catalog has no model `{word.text}`"
            self._faults.add(word, message, meant(word.text, tuple(models)))
            return None
        return ModelName(word.text)

    def _address(self, node: Entries) -> str | None:
        word = self._text(node, "address")
        if word is None:
            return None
        host, _, port = word.text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            self._faults.add(word, f"`{word.text}` is no address", "write `host:port`")
            return None
        return word.text

    def _engine(self, node: Entries) -> EngineEnvironment | None:
        word = self._text(node, "engine")
        if word is None:
            return None
        found = self._catalog.engines.get(EngineName(word.text))
        if found is None:
            known = tuple(self._catalog.engines)
            self._faults.add(word, f"unknown engine `{word.text}`", meant(word.text, known))
        return found

    def _metrics(self, node: Entries) -> dict[str, str] | None:
        entry = node.entries.get("metrics")
        if entry is None:
            return None
        if not isinstance(entry.value, Entries):
            self._faults.add(entry.value, "`metrics` maps figures to the engine's names for them")
            return None
        return read_metrics(entry.value, self._faults)


def changed(
    before: Mapping[ShardKey, EndpointShard], after: Mapping[ShardKey, EndpointShard]
) -> dict[ShardKey, EndpointShard | None]:
    """What a table that holds `before` must be told."""
    gone: dict[ShardKey, EndpointShard | None] = {key: None for key in before if key not in after}
    return gone | {key: shard for key, shard in after.items() if before.get(key) != shard}
