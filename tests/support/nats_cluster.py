"""Three real nats-servers that keep the streams together, each to be killed and brought back."""

import asyncio
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from schemas import codec
from services.log import api, server
from services.log.connect import Connection
from services.log.message import Unavailable
from tests.support.nats_server import NatsServer
from tests.support.ports import free_ports
from tests.support.waiting import eventually

SIZE = 3


class _Replica(Struct, frozen=True):
    name: str
    current: bool = False


class _Placed(Struct, frozen=True):
    leader: str = ""
    replicas: tuple[_Replica, ...] = ()


class _Info(Struct, frozen=True):
    cluster: _Placed = _Placed()


class _Page(Struct, frozen=True):
    meta_cluster: _Placed = _Placed()


class NatsCluster:
    """`start` all, then end and start `servers` one by one. Their ports are kept."""

    def __init__(self, directory: Path) -> None:
        routes = [f"127.0.0.1:{port}" for port in free_ports(SIZE)]
        self.servers = [
            NatsServer(
                directory / f"nats-{number}",
                monitored=True,
                name=f"nats-{number}",
                cluster=server.Cluster("flotilla", route, routes),
            )
            for number, route in enumerate(routes, 1)
        ]
        for (
            each
        ) in self.servers:  # Here, since ports are not handed out to several threads at once.
            each.port, each.monitor_port = free_ports(2)

    @property
    def url(self) -> str:
        """All of them, as a program is given it."""
        return ",".join(server.url for server in self.servers)

    def named(self, name: str) -> NatsServer:
        (found,) = (server for server in self.servers if server.name == name)
        return found

    def start(self) -> None:
        """Returns once each answers; a leader comes later."""
        with ThreadPoolExecutor(SIZE) as pool:
            for _ in pool.map(NatsServer.start, self.servers):
                pass

    def kill(self) -> None:
        for each in self.servers:
            each.kill()

    def meta_leader(self) -> NatsServer | None:
        """Who leads the making of streams and consumers; None: nobody says that it does."""
        for each in self.servers:
            if each.running and _meta(each).leader == each.name:
                return each
        return None

    async def leader(self, connection: Connection, stream: str) -> NatsServer | None:
        """Who leads the stream; None: nobody says so now."""
        placed = await _placed(connection, stream)
        return self.named(placed.leader) if placed and placed.leader else None

    async def until_leader(self, connection: Connection, stream: str) -> NatsServer:
        async def asked() -> NatsServer | None:
            found = await self.leader(connection, stream)
            return found if found is not None and found.running else None

        return await eventually(asked, f"{stream} has a leader")

    async def until_meta(self) -> NatsServer:
        """Until somebody leads."""

        async def asked() -> NatsServer | None:
            return await asyncio.to_thread(self.meta_leader)

        return await eventually(asked, "the cluster has a meta leader")

    async def until_complete(self) -> None:
        """Until the leader counts on all three: streams with three copies can be made."""

        async def asked() -> bool:
            leader = await self.until_meta()
            others = (await asyncio.to_thread(_meta, leader)).replicas
            return len(others) == SIZE - 1 and all(other.current for other in others)

        await eventually(asked, "the cluster is complete")

    async def until_whole(self, connection: Connection, *streams: str) -> None:
        """Until every copy of the streams is current, so that another server may be lost."""

        async def whole(stream: str) -> bool:
            placed = await _placed(connection, stream)
            return (
                placed is not None
                and placed.leader != ""
                and len(placed.replicas) == SIZE - 1
                and all(replica.current for replica in placed.replicas)
            )

        for stream in streams:

            async def asked(stream: str = stream) -> bool:
                return await whole(stream)

            await eventually(asked, f"all copies of {stream} are current")


def _meta(server: NatsServer) -> _Placed:
    page = f"http://127.0.0.1:{server.monitor_port}/jsz"
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return codec.decode(answer.read(), _Page).meta_cluster
    except OSError:
        return _Placed()  # On its way up or down.


async def _placed(connection: Connection, stream: str) -> _Placed | None:
    try:
        return (await api.call(connection, f"STREAM.INFO.{stream}", None, _Info, 1.0)).cluster
    except (Unavailable, api.ApiError):
        return None
