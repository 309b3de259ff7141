"""A router with a control plane: follows the log, reports to it, and serves meanwhile."""

import asyncio
import secrets
from collections.abc import Callable

import msgspec
import structlog

from schemas import codec
from schemas.ids import LogId, RouterId
from services.log.connect import Connection
from services.log.stored import Stored
from services.log.write import Writer
from services.router.config import Config
from services.router.program import Router
from services.router.report import Reporter
from services.router.source import Standing
from services.router.static import StaticFiles
from services.router.watch import Watch

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_with_log(
    config: Config, router: Router, made: Callable[["Logged"], None] = lambda _: None
) -> None:
    """Until cancelled; `made` is given the link to the log. Raises OSError when a port is taken."""
    if config.catalog is not None and config.endpoints is not None:
        await StaticFiles(router.table, config.catalog, config.endpoints).read()
    connection = Connection(config.nats_url, router.name)
    source = Logged(config, router, connection)
    made(source)
    await connection.start()
    try:
        await router.run(source)
    finally:
        await connection.close()


class Logged:
    """Keeps the table in step with the log, and the log informed about the router."""

    def __init__(self, config: Config, router: Router, connection: Connection) -> None:
        self._config = config
        self._router = router
        self._connection = connection
        self._incarnation = secrets.token_hex(4)
        self._since = router.clock.wall()
        self._watch = Watch(
            connection, router.table, config.data, router.name, self._incarnation, router.clock
        )
        self._watch.restore()

    def standing(self) -> Standing:
        return self._watch.standing()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._report())

    async def _report(self) -> None:
        """Only to the log that is followed."""
        log_id = await self._watch.turns(None)
        while True:
            async with asyncio.TaskGroup() as group:
                tasks = [] if log_id is None else self._reporting(group, log_id)
                log_id = await self._watch.turns(log_id)
                for task in tasks:
                    task.cancel()

    def _reporting(self, group: asyncio.TaskGroup, log_id: LogId) -> list[asyncio.Task[None]]:
        router = self._router
        writer = Writer(
            self._connection,
            source=source_of(router.name),
            log_id=log_id,
            now=router.clock.wall,
            may_replace=self._may_replace,
        )
        reporter = Reporter(router.name, self._incarnation, self._since, router.table, router.used)
        reporting = reporter.run(self._config.report_seconds, router.clock.wall, writer)
        return [group.create_task(writer.run()), group.create_task(reporting)]

    def _may_replace(self, standing: Stored) -> bool:
        """An earlier start of this router, or the leader that took it for gone; nobody else."""
        try:
            event = codec.decode_event(standing.payload)
            known = event.src == source_of(self._router.name) or event.src.startswith("control/")
        except msgspec.DecodeError:
            known = True  # Nobody's.
        if not known:
            log.error("router.name_in_use", name=self._router.name)
        return known


def source_of(router: RouterId) -> str:
    """As it stands in events."""
    return f"router/{router}"
