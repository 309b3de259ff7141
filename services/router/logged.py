"""A router with a control plane: follows the log, reports to it, and serves meanwhile.

A report of an earlier start of this router is written over. While another router of the same name
lives, whoever's report stands goes on with it and the other waits until it is alone; both serve, and
both say so.
"""

import asyncio
import secrets
from collections.abc import Callable

import msgspec
import structlog
from msgspec import structs

from schemas import codec, subjects
from schemas.beats import RouterBeat
from schemas.documents import RouterReport
from schemas.events import Event
from schemas.ids import LogId, RouterId
from services.log.connect import Connection
from services.log.message import Message, Unavailable
from services.log.own import own_documents
from services.log.stored import Stored
from services.log.write import Writer
from services.router.config import Config
from services.router.namesake import Namesakes
from services.router.program import Router
from services.router.report import Reporter
from services.router.source import Standing
from services.router.static import StaticFiles
from services.router.watch import Watch

CHECK_SECONDS = 30.0
NAME_SECONDS = 1.0
"""Between two looks whether another router of this name lives."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def run_with_log(
    config: Config, router: Router, made: Callable[["Logged"], None] = lambda _: None
) -> None:
    """Until cancelled; `made` is given the link to the log. Raises OSError when a port is taken."""
    if config.catalog is not None and config.endpoints is not None:
        await StaticFiles(router.table, config.catalog, config.endpoints).read()
    connection = Connection(config.nats, router.name)
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
        self.incarnation = secrets.token_hex(4)
        self._since = router.clock.wall()
        self._watch = Watch(
            connection, router.table, config.data, router.name, self.incarnation, router.clock
        )
        self._watch.restore()
        self._namesakes = Namesakes(self.incarnation)
        self._reporter: Reporter | None = None

    def standing(self) -> Standing:
        living = self._namesakes.living(self._router.clock.monotonic())
        connection = self._connection
        return structs.replace(
            self._watch.standing(),
            namesakes=living,
            trouble=connection.trouble,
            denials=connection.denials,
        )

    async def run(self) -> None:
        beats = subjects.router_beat(self._router.name)
        await self._connection.subscribe(beats, self._on_router_beat)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            group.create_task(self._report())
            group.create_task(self._watch_name())

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
        reporter = Reporter(router.name, self.incarnation, self._since, router.table, router.used)
        self._reporter = reporter
        reporting = reporter.run(self._config.report_seconds, router.clock.wall, writer)
        checking = self._check(reporter, writer, log_id)
        return [group.create_task(each) for each in (writer.run(), reporting, checking)]

    async def _check(self, reporter: Reporter, writer: Writer, log_id: LogId) -> None:
        """Now and then, whether what stands under this router's name can be read. For ever."""
        pattern = subjects.router_reports(self._router.name)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await writer.idle()
            try:
                found = await own_documents(self._connection, pattern, RouterReport, log_id)
            except Unavailable as error:
                log.info("router.check_waits", reason=str(error))
                continue
            reporter.check(found)

    def _may_replace(self, standing: Stored) -> bool:
        """Whatever it is, unless another router of this name that lives has told it.

        Of an earlier start of this router; of the leader, which took it for gone; or of nobody that may
        write there.
        """
        try:
            event = codec.decode_event(standing.payload)
        except msgspec.DecodeError:
            return True
        return event.src != source_of(self._router.name) or not self._is_namesakes(event)

    def _is_namesakes(self, event: Event) -> bool:
        try:
            report = codec.decode(event.data, RouterReport)
        except msgspec.DecodeError:
            return False
        return self._namesakes.lives(report.incarnation, self._router.clock.monotonic())

    def _on_router_beat(self, message: Message) -> None:
        try:
            beat = codec.decode(message.payload, RouterBeat)
        except msgspec.DecodeError:
            return
        if beat.router == self._router.name:
            self._namesakes.heard(beat.incarnation, self._router.clock.monotonic())

    async def _watch_name(self) -> None:
        """Say when another comes, and report anew when it has gone."""
        before: tuple[str, ...] = ()
        while True:
            await asyncio.sleep(NAME_SECONDS)
            living = self._namesakes.living(self._router.clock.monotonic())
            if living and living != before:
                log.error("router.name_in_use", name=self._router.name, incarnations=living)
            elif before and not living:
                log.info("router.name_free", name=self._router.name)
                if self._reporter is not None:
                    self._reporter.again()
            before = living


def source_of(router: RouterId) -> str:
    """As it stands in events."""
    return f"router/{router}"
