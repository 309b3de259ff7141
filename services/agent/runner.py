"""Shell around one shard: carries out what `services.agent.shard` decides, and tells it what happened.

One task a shard takes its events one by one. While an engine runs, three more watch it: one waits for
its end, one asks it (`services.agent.asking`), one keeps its log from filling the disk.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import structlog
from msgspec.structs import replace

from schemas.beats import EngineLoad
from schemas.documents import LastError
from services.agent import clock, disk, engine_log, process, secrets, shard, starting
from services.agent.asking import Asking
from services.agent.diagnose import around, diagnose, lines, withheld
from services.agent.engine_log import EngineLog
from services.agent.engines.adapter import Adapter
from services.agent.engines.table import ADAPTERS
from services.agent.host import Host
from services.agent.shard import Action, Event, Life, Process
from services.runtime import proc

log = structlog.get_logger()

LONGEST_WAIT_SECONDS = 60.0
"""Then timers are looked at anyway: the clock may have been set."""
LOG_LOOK_SECONDS = 10.0


class Runner:
    """One shard. `send` tells it of the assignment; `run` lives until cancelled, engines outlive it."""

    def __init__(self, life: Life, host: Host) -> None:
        self.life = life
        self.kept = False
        """`life` is on disk. False from its change until then: a thread may be writing its file."""
        self._host = host
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._watchers: list[asyncio.Task[None]] = []
        self._asking: Asking | None = None
        self._saved: Life | None = None

    @property
    def load(self) -> EngineLoad:
        """As last scraped."""
        return self._asking.load if self._asking else EngineLoad()

    @property
    def _adapter(self) -> Adapter:
        return ADAPTERS[self.life.order.launch.kind]

    def send(self, event: Event) -> None:
        """Taken in order."""
        self._events.put_nowait(event)

    async def run(self) -> None:
        """Adopt or start, then follow events."""
        async with asyncio.TaskGroup() as group:
            await self._resume(group)
            while True:
                await self._handle(await self._next(), group)

    async def _next(self) -> Event:
        due = shard.due_in(self.life, clock.now())
        longest = LONGEST_WAIT_SECONDS if self.kept else disk.RETRY_SECONDS
        try:
            async with asyncio.timeout(longest if due is None else max(0.0, min(due, longest))):
                return await self._events.get()
        except TimeoutError:
            return shard.Ticked()

    async def _handle(self, event: Event, group: asyncio.TaskGroup) -> None:
        rules = shard.Rules(
            now=clock.now(),
            source=self._host.source,
            kill_while_loading=self._adapter.kill_while_loading,
            stop_grace_seconds=self._adapter.stop_grace_seconds,
        )
        before = self.life
        self.life, actions = shard.step(before, event, rules)
        if self.life.process is None:
            self._unwatch()
        await self._keep(before)
        for action in actions:
            await self._do(action, group)

    async def _keep(self, before: Life) -> None:
        """On disk first, then told.

        While the disk refuses, all is told but a stop: the next agent would start again what its
        file says was running, on cards that others may have been given.
        """
        if self.life == before and self.kept:
            return
        self.kept = False
        self.kept = await self._save()
        if self.life.phase != before.phase:
            self._say()
        if self.kept or self.life.phase != "stopped":
            self._host.changed(self.life)

    async def _save(self) -> bool:
        life = self.life
        lasting = replace(life, progress=None, moved_at=0.0, idle_looks=0)
        if lasting != self._saved:
            what = f"state of {life.replica}"
            if not await self._host.disk.keep(what, lambda: self._host.store.save(life)):
                return False
            self._saved = lasting
        return True

    def _say(self) -> None:
        error = self.life.error
        log.info(
            "shard.changed",
            phase=self.life.phase,
            replica=self.life.replica,
            attempt=self.life.order.attempt,
            run=self.life.run,
            failure=error.failure if error else None,
            message=error.message if error else None,
        )

    async def _do(self, action: Action, group: asyncio.TaskGroup) -> None:
        match action, self.life.process:
            case "start", _:
                await self._start(group)
            case "terminate", Process(engine=engine):
                proc.send(engine, process.TERM)
            case "kill", Process(leader=leader):
                group.create_task(process.kill_session(leader, self._mark()))
            case _, None:
                self.send(shard.Exited(LastError(failure="killed", message="it did not run")))

    async def _start(self, group: asyncio.TaskGroup) -> None:
        begun = await starting.start(self.life, self._host)
        if isinstance(begun, LastError):
            await self._handle(shard.Refused(begun), group)
            return
        await self._handle(begun.started, group)
        self._watch(begun.started.process, begun.secrets, group)

    async def _resume(self, group: asyncio.TaskGroup) -> None:
        """Go on from the state file: adopt what lives. What died meanwhile is told as its end."""
        if self.life.phase in ("failed", "stopped"):
            await self._keep(self.life)
            return
        found = self.life.process or await asyncio.to_thread(process.find, self._mark())
        if found is None or found.leader.boot_id != proc.boot_id():
            await self._resume_without(group)
            return
        secrets_of_run = self._secrets_of(found)
        if proc.is_alive(found.engine):
            await self._adopt(found)
        self._watch(found, secrets_of_run, group)
        if self.life.phase == "stopping":
            await self._do("terminate", group)

    def _secrets_of(self, found: Process) -> tuple[str, ...] | None:
        """What must be struck out of what this run has said and will say; None: it is not known."""
        return secrets.known(
            self.life.order.launch.env,
            self._host.secrets_folder,
            os.environ,
            process.environ(found),
            self.life.secrets_seal,
        )

    async def _adopt(self, found: Process) -> None:
        before, version = self.life, self._host.version(self.life.order.launch.engine)
        self.life = shard.adopted(before, found, version, clock.now())
        await self._keep(before)
        log.info("shard.adopted", replica=self.life.replica, pid=found.engine.pid)

    async def _resume_without(self, group: asyncio.TaskGroup) -> None:
        """No engine, and none that failed: never started, stopped with the agent, or a reboot."""
        before = self.life
        if before.process is not None or before.phase == "stopping":
            self.life = shard.parked(before, clock.now())
        await self._keep(before)
        if self.life.phase == "starting":
            await self._start(group)

    def _mark(self) -> dict[str, str]:
        return process.mark(self.life, self._host.store.data)

    @property
    def _log_path(self) -> Path:
        return self._host.store.log(self.life.replica)

    def _watch(
        self, running: Process, secrets: tuple[str, ...] | None, group: asyncio.TaskGroup
    ) -> None:
        self._asking = Asking(running, secrets, self._host, lambda: self.life, self.send)
        self._watchers = [
            group.create_task(self._await_end(running, self._mark(), secrets)),
            group.create_task(self._asking.run()),
            group.create_task(self._bound_log()),
        ]

    def _unwatch(self) -> None:
        for task in self._watchers:
            task.cancel()
        self._watchers, self._asking = [], None

    async def _await_end(
        self, running: Process, marked: Mapping[str, str], secrets: tuple[str, ...] | None
    ) -> None:
        await process.ended(running.engine)
        await process.kill_session(running.leader, marked)
        code = process.exit_code(self._host.store.exit_file(self.life.replica))
        tail = EngineLog(self._log_path, self.life.log_start).tail()
        served = self.life.phase in ("ready", "stopping")
        shown = lines(tail, secrets or ())
        error = diagnose(shown, code, self._adapter, served=served)
        if secrets is not None and self.life.phase != "stopping":
            last = around(shown, len(shown) - 1, engine_log.TAIL_BYTES)
            self._host.failed(self.life.replica, last)
        self.send(shard.Exited(withheld(error) if secrets is None else error))

    async def _bound_log(self) -> None:
        what, path = f"log of {self.life.replica}", self._log_path
        while True:
            await self._host.disk.keep(what, lambda: engine_log.shorten(path))
            await asyncio.sleep(LOG_LOOK_SECONDS)
