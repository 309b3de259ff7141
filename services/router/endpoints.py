"""The endpoint table: which replicas serve which model, and what this router knows of each.

Pure. Made of one catalog and any number of endpoint shards, which may arrive in any order, twice or
late: equal inputs give an equal table. It names no model that the catalog has not. What a router
knows of an endpoint by itself (`Live`) outlasts every update that leaves the same start of the same
replica at the same address; anything else is a new endpoint. That of an endpoint which no document
names stays for as long as a request uses it; `tidy` lets go of it then.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

from msgspec import Struct

from schemas.beats import EngineLoad
from schemas.catalog import Model
from schemas.documents import Endpoint, EndpointShard
from schemas.ids import ModelName, ReplicaId
from services.fleet.catalog import EMPTY, Catalog
from services.router.breaker import Breaker


class EndpointKey(NamedTuple):
    """What makes two endpoints the same one."""

    replica: ReplicaId
    incarnation: str
    address: str


class Figures(Struct, frozen=True, gc=False, kw_only=True):
    """An engine's scraped figures as they bear on a choice. None = unknown."""

    others: float | None
    """Requests running there that are not this router's."""
    waiting: float | None
    kv_usage: float | None
    at: float
    """Monotonic seconds of their arrival."""


class Live:
    """What this router alone knows of an endpoint. Mutable."""

    __slots__ = ("breaker", "figures", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.breaker = Breaker()
        self.figures: Figures | None = None

    def loaded(self, load: EngineLoad, now: float) -> None:
        """Take over what was scraped. This router's own requests are known better by itself."""
        others = None if load.running is None else max(0.0, load.running - self.in_flight)
        self.figures = Figures(others=others, waiting=load.waiting, kv_usage=load.kv_usage, at=now)


class Route(Struct, frozen=True, gc=False, eq=False):
    """An endpoint and its live state. Compared by identity."""

    key: EndpointKey
    endpoint: Endpoint
    live: Live


class Target:
    """A model as requests see it. A request keeps the one that it was accepted under.

    `routes` follow the endpoints for as long as the catalog has the model; then they stay as they
    were, so that a request that was accepted before ends as if nothing had happened.
    """

    __slots__ = ("first", "last", "model")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.first: tuple[Route, ...] = ()
        """For ordinary choice."""
        self.last: tuple[Route, ...] = ()
        """Only when none of `first` can serve."""


ShardKey = tuple[str, ...]
"""Model token and number, as in the subject."""


class Table:
    """Mutable; changed between requests, never within a choice."""

    def __init__(self) -> None:
        self.known = False
        """Whether anybody has said yet what there is, be it nothing."""
        self.catalog: Catalog = EMPTY
        self.targets: Mapping[ModelName, Target] = {}
        """By model name; aliases resolve through the catalog."""
        self._shards: dict[ModelName, dict[ShardKey, EndpointShard]] = {}
        self._model_of: dict[ShardKey, ModelName] = {}
        self._live: dict[ModelName, dict[EndpointKey, Live]] = {}
        self._by_replica: dict[ReplicaId, dict[EndpointKey, Live]] = {}
        self._lingering: set[ModelName] = set()
        """Models with an endpoint that is kept only because a request used it."""

    def find(self, name: str) -> Target | None:
        """What a client means by this name or alias, now."""
        model = self.catalog.resolve(name)
        return None if model is None else self.targets.get(model.name)

    def set_catalog(self, catalog: Catalog) -> None:
        """Swap. Models that stay keep their target."""
        self.known = True
        self.catalog = catalog
        self.targets = {name: self._target(model) for name, model in catalog.models.items()}

    def put(self, key: ShardKey, shard: EndpointShard | None) -> None:
        """One endpoint document; None: it is no more."""
        before = self._model_of.pop(key, None)
        if before is not None:
            self._shards[before].pop(key, None)
        if shard is not None:
            self._model_of[key] = shard.model
            self._shards.setdefault(shard.model, {})[key] = shard
        for model in {before, None if shard is None else shard.model} - {None}:
            self._rebuild(cast("ModelName", model))

    def replace(self, catalog: Catalog, shards: Mapping[ShardKey, EndpointShard]) -> None:
        """Everything at once; no request is looked at in between."""
        self.set_catalog(catalog)
        for key, shard in shards.items():
            self.put(key, shard)
        for key in self._model_of.keys() - shards.keys():
            self.put(key, None)

    def tidy(self) -> None:
        """Forget endpoints that no document names any more and no request uses."""
        for model in tuple(self._lingering):
            self._keep_live(model)

    def _rebuild(self, model: ModelName) -> None:
        self._keep_live(model)
        target = self.targets.get(model)
        if target is not None:
            self._route(target)
        if not self._shards[model]:
            del self._shards[model]

    def _endpoints(self, model: ModelName) -> list[Endpoint]:
        """Shards beyond the count that the first one states are old."""
        shards = sorted(self._shards.get(model, {}).items())
        count = next((s.shards for _, s in shards if s.shard == 0), None)
        return [
            endpoint
            for _, shard in shards
            if count is None or shard.shard < count
            for endpoint in shard.endpoints
        ]

    def _keep_live(self, model: ModelName) -> None:
        named = {key_of(endpoint) for endpoint in self._endpoints(model)}
        before = self._live.get(model, {})
        kept = {k: live for k, live in before.items() if k in named or live.in_flight}
        self._live[model] = after = {k: kept.get(k) or Live() for k in kept.keys() | named}
        for key in before.keys() - after.keys():
            self._by_replica[key.replica].pop(key)
            if not self._by_replica[key.replica]:
                del self._by_replica[key.replica]
        for key in after.keys() - before.keys():
            self._by_replica.setdefault(key.replica, {})[key] = after[key]
        if not after:
            del self._live[model]
        if after.keys() > named:
            self._lingering.add(model)
        else:
            self._lingering.discard(model)

    def _target(self, model: Model) -> Target:
        target = self.targets.get(model.name)
        if target is None:
            target = Target(model)
            self._route(target)
        target.model = model
        return target

    def _route(self, target: Target) -> None:
        live = self._live.get(target.model.name, {})
        routes = [
            Route(key, endpoint, live[key])
            for endpoint in self._endpoints(target.model.name)
            if not endpoint.unrouted
            for key in (key_of(endpoint),)
        ]
        target.first = tuple(r for r in routes if not r.endpoint.last_choice)
        target.last = tuple(r for r in routes if r.endpoint.last_choice)

    def loaded(self, engines: Mapping[ReplicaId, EngineLoad], now: float) -> None:
        """Scraped figures, from an agent's message or this router's own scrape."""
        for replica, load in engines.items():
            for live in self._by_replica.get(replica, {}).values():
                live.loaded(load, now)

    def endpoints(self) -> list[tuple[Model, Endpoint, Live]]:
        """Every endpoint of every model in the catalog, unrouted ones included."""
        return [
            (model, endpoint, self._live[name][key_of(endpoint)])
            for name, model in self.catalog.models.items()
            for endpoint in self._endpoints(name)
        ]

    def busy(self) -> dict[ReplicaId, ModelName]:
        """Replicas that a request uses now, those included that no document names any more."""
        return {
            key.replica: model
            for model, known in self._live.items()
            for key, live in known.items()
            if live.in_flight
        }

    def keys(self) -> set[EndpointKey]:
        """Endpoints that any document names or any request still uses."""
        return {key for live in self._live.values() for key in live}


def key_of(endpoint: Endpoint) -> EndpointKey:
    """Same key, same endpoint."""
    return EndpointKey(endpoint.replica, endpoint.incarnation, endpoint.address)
