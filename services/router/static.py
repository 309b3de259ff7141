"""Static mode: no control plane. Keeps the table in step with two files and the endpoints themselves.

How it fails:
- a file is missing or has a fault: it is refused as a whole, every fault is told, what was served
  before serves on; the next good one takes effect;
- an endpoint does not answer its health check twice in a row: it is chosen only when no other can
  serve, until it answers again. Its figures are then unknown.
"""

import asyncio
import time
from pathlib import Path

import aiohttp
import structlog

from schemas.documents import Endpoint, EndpointShard
from schemas.frames import Fault
from services.fleet.engine_metrics import parse
from services.fleet.faults import place
from services.router.endpoints import ShardKey, Table
from services.router.seed import Seed, changed, read_seed
from services.router.source import Standing

POLL_SECONDS = 1.0
CHECK_SECONDS = 2.0
"""For a health check or a scrape."""
FAILED_CHECKS = 2
"""In a row: the endpoint is ailing."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class StaticFiles:
    """The two files and what came of them."""

    def __init__(self, table: Table, catalog: Path, endpoints: Path) -> None:
        self.faults: tuple[Fault, ...] = ()
        """Of the files as they stand; empty: they are in effect."""
        self.seed: Seed | None = None
        self._table = table
        self._paths = (catalog, endpoints)
        self._content: tuple[bytes, bytes] | None = None
        self._applied: dict[ShardKey, EndpointShard] = {}
        self._misses: dict[str, int] = {}
        self._changed = time.monotonic()

    def standing(self) -> Standing:
        """For the admin listener."""
        return Standing(
            mode="none" if self.seed is None else "static",
            changed=self._changed,
            refused=tuple(shown(fault) for fault in self.faults),
        )

    async def read(self) -> bool:
        """Look at the files; apply them if they have changed and are good. Whether they are."""
        try:
            content = await asyncio.to_thread(self._read)
        except OSError as error:
            self._content = None
            self._refuse((Fault(file=str(error.filename), message=error.strerror or "?"),))
            return False
        if content != self._content:
            self._content = content
            self._take(content)
        return not self.faults

    def _read(self) -> tuple[bytes, bytes]:
        catalog, endpoints = self._paths
        return catalog.read_bytes(), endpoints.read_bytes()

    def _take(self, content: tuple[bytes, bytes]) -> None:
        found = read_seed(*content, *map(str, self._paths))
        if not isinstance(found, Seed):
            self._refuse(found)
            return
        self.faults = ()
        if found == self.seed:
            return
        self.seed = found
        self._applied = found.shards(self._ailing())
        self._table.replace(found.catalog, self._applied)
        self._changed = time.monotonic()
        log.info("catalog.taken", models=len(found.catalog.models), hash=found.catalog.hash)

    def _refuse(self, faults: tuple[Fault, ...]) -> None:
        if faults == self.faults:
            return
        self.faults = faults
        for fault in faults:
            log.error(
                "catalog.refused",
                file=fault.file,
                line=fault.line,
                column=fault.column,
                reason=fault.message,
                hint=fault.hint,
            )

    def _ailing(self) -> frozenset[str]:
        return frozenset(a for a, missed in self._misses.items() if missed >= FAILED_CHECKS)

    async def run(self) -> None:
        """Follow the files and the endpoints, for ever."""
        timeout = aiohttp.ClientTimeout(total=CHECK_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self.read()
                await self._check_all(session)
                await asyncio.sleep(POLL_SECONDS)

    async def _check_all(self, session: aiohttp.ClientSession) -> None:
        if self.seed is None:
            return
        async with asyncio.TaskGroup() as group:
            for _, endpoint in self.seed.endpoints:
                group.create_task(self._check(session, endpoint))
        known = {endpoint.address for _, endpoint in self.seed.endpoints}
        self._misses = {a: missed for a, missed in self._misses.items() if a in known}
        after = self.seed.shards(self._ailing())
        for key, shard in changed(self._applied, after).items():
            self._table.put(key, shard)
            self._changed = time.monotonic()
        self._applied = after

    async def _check(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        healthy = await _get(session, f"http://{endpoint.address}/health") is not None
        missed = 0 if healthy else self._misses.get(endpoint.address, 0) + 1
        self._misses[endpoint.address] = missed
        if not healthy:
            return
        page = await _get(session, f"http://{endpoint.address}/metrics")
        if page is not None:
            load = parse(page, endpoint.kind, endpoint.metrics)
            self._table.loaded({endpoint.replica: load}, time.monotonic())


def shown(fault: Fault) -> str:
    """A fault on one line."""
    where = place(fault)
    return f"{where}: {fault.message}" if where else fault.message


async def _get(session: aiohttp.ClientSession, url: str) -> str | None:
    """The text of a 200; None for anything else."""
    try:
        async with session.get(url) as response:
            return await response.text(errors="replace") if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None
