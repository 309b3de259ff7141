"""The endpoint table: which replicas serve which model, and what this router knows of each.

Pure. Made of one catalog and any number of endpoint shards, which may arrive in any order, twice or
late: equal inputs give an equal table. It names no model that the catalog has not. What a router
knows of an endpoint by itself (`Live`) outlasts every update that leaves the same start of the same
replica at the same address; anything else is a new endpoint.
"""

from collections.abc import Mapping
from typing import NamedTuple

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
        self.catalog: Catalog = EMPTY
        self.targets: Mapping[ModelName, Target] = {}
        """By model name; aliases resolve through the catalog."""
        self._shards: dict[ShardKey, EndpointShard] = {}
        self._live: dict[EndpointKey, Live] = {}
        self._by_replica: dict[ReplicaId, list[Live]] = {}

    def find(self, name: str) -> Target | None:
        """What a client means by this name or alias, now."""
        model = self.catalog.resolve(name)
        return None if model is None else self.targets.get(model.name)

    def set_catalog(self, catalog: Catalog) -> None:
        """Swap. Models that stay keep their target."""
        self.replace(catalog, self._shards)

    def put(self, key: ShardKey, shard: EndpointShard | None) -> None:
        """One endpoint document; None: it is no more."""
        shards = dict(self._shards)
        if shard is None:
            shards.pop(key, None)
        else:
            shards[key] = shard
        self.replace(self.catalog, shards)

    def replace(self, catalog: Catalog, shards: Mapping[ShardKey, EndpointShard]) -> None:
        """Everything at once: no choice sees one without the other."""
        self.catalog = catalog
        self._shards = dict(shards)
        endpoints = self._endpoints()
        self._keep_live(endpoints)
        self.targets = {
            name: self._target(model, endpoints.get(name, ()))
            for name, model in catalog.models.items()
        }

    def _endpoints(self) -> dict[ModelName, list[Endpoint]]:
        """Of every model that any document names. Shards beyond the count of the first are old."""
        found: dict[ModelName, list[Endpoint]] = {}
        counts = {s.model: s.shards for s in self._shards.values() if s.shard == 0}
        for _, shard in sorted(self._shards.items()):
            if shard.shard < counts.get(shard.model, shard.shards):
                found.setdefault(shard.model, []).extend(shard.endpoints)
        return found

    def _keep_live(self, endpoints: Mapping[ModelName, list[Endpoint]]) -> None:
        named = {key_of(endpoint) for listed in endpoints.values() for endpoint in listed}
        kept = {k: live for k, live in self._live.items() if k in named or live.in_flight}
        self._live = {key: kept.get(key) or Live() for key in kept.keys() | named}
        self._by_replica = {}
        for key, live in self._live.items():
            self._by_replica.setdefault(key.replica, []).append(live)

    def _target(self, model: Model, endpoints: list[Endpoint] | tuple[()]) -> Target:
        routes = [
            Route(key, endpoint, self._live[key])
            for endpoint in endpoints
            if not endpoint.unrouted
            for key in (key_of(endpoint),)
        ]
        target = self.targets.get(model.name) or Target(model)
        target.model = model
        target.first = tuple(r for r in routes if not r.endpoint.last_choice)
        target.last = tuple(r for r in routes if r.endpoint.last_choice)
        return target

    def loaded(self, engines: Mapping[ReplicaId, EngineLoad], now: float) -> None:
        """Scraped figures, from an agent's message or this router's own scrape."""
        for replica, load in engines.items():
            for live in self._by_replica.get(replica, ()):
                live.loaded(load, now)

    def endpoints(self) -> list[tuple[Model, Endpoint, Live]]:
        """Every endpoint of every model in the catalog, unrouted ones included."""
        found = self._endpoints()
        return [
            (model, endpoint, self._live[key_of(endpoint)])
            for name, model in self.catalog.models.items()
            for endpoint in found.get(name, ())
        ]

    def keys(self) -> set[EndpointKey]:
        """Endpoints that any document names or any request still uses."""
        return set(self._live)


def key_of(endpoint: Endpoint) -> EndpointKey:
    """Same key, same endpoint."""
    return EndpointKey(endpoint.replica, endpoint.incarnation, endpoint.address)
