"""The router's client door in this process, in front of whatever endpoints a test names."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from schemas.documents import Endpoint, EndpointShard
from schemas.ids import ModelName, NodeId, ReplicaId
from services.fleet.catalog import Catalog, from_yaml
from services.router import api
from services.router.endpoints import Route, Table
from services.router.idle import LastUsed
from services.router.metrics import Metrics
from services.router.pool import Upstreams
from services.router.proxy import Clock, Proxy, Timing
from tests.support.waiting import until

TINY = "models: {tiny: {engine: llamacpp, source: /models/tiny.gguf, aliases: [small]}}"
TIMING = Timing(connect=1.0, first_byte=10.0, whole_first_byte=10.0, idle=10.0)


def a_catalog(text: str = TINY) -> Catalog:
    made = from_yaml(text)
    assert isinstance(made, Catalog), made
    return made


def an_endpoint(
    address: str,
    name: str = "tiny-0-1",
    *,
    incarnation: str = "1.0",
    node: str = "",
    unrouted: bool = False,
    last_choice: bool = False,
) -> Endpoint:
    """On a node of its own unless named."""
    return Endpoint(
        replica=ReplicaId(name),
        incarnation=incarnation,
        address=address,
        node=NodeId(node or f"node-of-{name}"),
        kind="llamacpp",
        unrouted=unrouted,
        last_choice=last_choice,
    )


def a_shard(
    *endpoints: Endpoint, model: str = "tiny", shard: int = 0, shards: int = 1
) -> EndpointShard:
    return EndpointShard(model=ModelName(model), shard=shard, shards=shards, endpoints=endpoints)


@dataclass
class Door:
    """A running client port."""

    table: Table
    proxy: Proxy
    upstreams: Upstreams
    used: LastUsed
    metrics: Metrics
    registry: CollectorRegistry
    url: str
    runner: web.ServerRunner
    client: aiohttp.ClientSession
    """No retries."""

    def serve(self, *addresses: str, model: str = "tiny") -> None:
        """Exactly these endpoints, one replica each."""
        endpoints = [an_endpoint(a, f"{model}-{n}-1") for n, a in enumerate(addresses)]
        self.table.put((model, "00"), a_shard(*endpoints, model=model))

    def chat(self, stream: bool = False, **more: object) -> dict[str, object]:
        """A body."""
        messages = [{"role": "user", "content": "hello"}]
        return {"model": "tiny", "messages": messages, "stream": stream} | more

    @asynccontextmanager
    async def post(
        self, stream: bool = False, *, headers: Mapping[str, str] | None = None, **more: object
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """One chat request."""
        body = self.chat(stream, **more)
        async with self.client.post("/v1/chat/completions", json=body, headers=headers) as response:
            yield response

    def routes(self, model: str = "tiny") -> tuple[Route, ...]:
        return self.table.targets[ModelName(model)].first

    async def settled(self) -> None:
        """Until no request is under way."""
        async with asyncio.timeout(10):
            await self.proxy.quiet()

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def page(self) -> str:
        return generate_latest(self.registry).decode()


@asynccontextmanager
async def a_door(
    *addresses: str,
    catalog: str = TINY,
    timing: Timing = TIMING,
    max_body: int = 1 << 20,
    models: Sequence[str] = ("tiny",),
    monotonic: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Door, None]:
    """Listens while the block lasts."""
    table, upstreams, used, registry = Table(), Upstreams(), LastUsed(), CollectorRegistry()
    metrics = Metrics(registry, table)
    clock = Clock(monotonic=monotonic, wall=time.time)
    proxy = Proxy(table, upstreams, timing, metrics, used, Random(1), clock)
    runner = await api.listen(api.ClientDoor(table, proxy, max_body), "127.0.0.1:0")
    url = "http://{}:{}".format(*runner.addresses[0])
    table.set_catalog(a_catalog(catalog))
    async with aiohttp.ClientSession(url) as client:
        door = Door(table, proxy, upstreams, used, metrics, registry, url, runner, client)
        if addresses:
            for model in models:
                door.serve(*addresses, model=model)
        try:
            yield door
        finally:
            upstreams.shut_down()
            await runner.cleanup()


eventually = until
