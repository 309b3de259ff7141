"""One router: its two listeners, what keeps its table current, and its orderly end."""

import asyncio
import time
from random import Random  # noqa: TID251 - the type; an instance is handed in.

import structlog
from prometheus_client import CollectorRegistry

from schemas.api import RouterTable
from schemas.ids import RouterId
from services.router import admin, api
from services.router.config import Config
from services.router.endpoints import Table
from services.router.idle import LastUsed
from services.router.metrics import Metrics
from services.router.pool import Upstreams
from services.router.proxy import Clock, Proxy
from services.router.source import Source
from services.runtime.admin import listen

TIDY_SECONDS = 1.0
DRAIN_SECONDS = 2.0
"""For requests under way when the router is told to end; then they end with an error event."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Router:
    """Everything of one process but where its table comes from."""

    def __init__(self, config: Config, name: RouterId, chance: Random) -> None:
        self.name = name
        self.listening = False
        """Both ports are open."""
        self.table = Table()
        self.used = LastUsed()
        self.registry = CollectorRegistry()
        self.clock = Clock(monotonic=time.monotonic, wall=time.time)  # noqa: TID251
        self._config = config
        self._upstreams = Upstreams()
        self._metrics = Metrics(self.registry, self.table)
        self._proxy = Proxy(
            self.table,
            self._upstreams,
            config.timing,
            self._metrics,
            self.used,
            chance,
            self.clock,
        )

    async def run(self, source: Source) -> None:
        """Until cancelled. Raises OSError when a port is taken."""
        self._metrics.watch(source.standing)
        door = api.ClientDoor(self.table, self._proxy, self._config.max_body_bytes)
        pages = admin.application(
            lambda: self._ready(source), self.registry, lambda: self._shown(source)
        )
        admin_runner = await listen(pages, self._config.admin_listen)
        try:
            client_runner = await api.listen(door, self._config.listen)
            try:
                self.listening = True
                log.info("router.listening", client=self._config.listen, name=self.name)
                await self._work(source)
            finally:
                for site in tuple(client_runner.sites):
                    await site.stop()  # No new connections; those there may end their requests.
                await self._drain()
                await client_runner.cleanup()
        finally:
            await admin_runner.cleanup()

    async def _work(self, source: Source) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(source.run())
            group.create_task(self._tidy())

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self.table.tidy()
            self._upstreams.tidy(self.table.keys(), self.clock.monotonic())
            self._metrics.tidy()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._proxy.quiet()
        except TimeoutError:
            log.info("router.cuts_short", requests=self._proxy.active)
        self._upstreams.shut_down()

    def _ready(self, source: Source) -> tuple[bool, str]:
        standing = source.standing()
        if self.table.known:
            twice = f"another router runs as {self.name}" if standing.namesakes else ""
            return True, twice or standing.trouble
        away = f"; {standing.trouble}" if standing.trouble else ""
        return False, f"no catalog yet{away}"

    def _shown(self, source: Source) -> RouterTable:
        standing, now = source.standing(), self.clock.monotonic()
        return RouterTable(
            as_of_seq=standing.applied,
            router=self.name,
            log=standing.log,
            connected=standing.connected,
            mode=standing.mode,
            revision=standing.revision,
            catalog_hash=self.table.catalog.hash,
            age_seconds=now - standing.changed,
            damage=standing.damage,
            refused=standing.refused,
            unreadable=standing.unreadable,
            models=tuple(self.table.targets),
            endpoints=admin.rows(self.table, self.used, now, self.clock.wall()),
        )
