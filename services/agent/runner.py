"""Shell around one shard: carries out what `services.agent.shard` decides, and tells it what happened.

One task a shard takes its events one by one. While an engine runs, two more watch it: one waits for
its end, the other asks it (until it serves: is it ready; then once a second: how busy is it).
"""

import asyncio
import errno
import os
import random  # noqa: TID251 - for its type.
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp
import structlog
from msgspec import Struct
from msgspec.structs import replace

from schemas.beats import EngineLoad
from schemas.documents import LastError, Progress
from schemas.ids import EngineName, ReplicaId
from services.agent import clock, engine_log, probe, process, secrets, shard
from services.agent.diagnose import diagnose, lines, progress
from services.agent.engine_log import EngineLog
from services.agent.engines.adapter import Adapter, Environment, refusal
from services.agent.engines.table import ADAPTERS
from services.agent.shard import Action, Event, Life, Process
from services.agent.store import Store
from services.runtime import proc

log = structlog.get_logger()

FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.05, 1.0
SCRAPE_SECONDS = 1.0
DEAD_LOOKS = 3
"""Looks in a row at which nobody serves, before a living process counts as failed."""
LONGEST_WAIT_SECONDS = 60.0
"""Then timers are looked at anyway: the clock may have been set."""


class Host(Struct, frozen=True):
    """What all shards of a node share."""

    store: Store
    environments: Mapping[EngineName, Environment]
    secrets_folder: Path
    http: aiohttp.ClientSession
    source: random.Random
    changed: Callable[[Life], None]
    """Told of every new state, after it is on disk."""
    in_the_way: Callable[[Life], ReplicaId | None]
    """Which other live shard uses one of its cards."""


class Runner:
    """One shard. `send` tells it of the assignment; `run` lives until cancelled, engines outlive it."""

    def __init__(self, life: Life, host: Host) -> None:
        self.life = life
        self.load = EngineLoad()
        self._host = host
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._watchers: list[asyncio.Task[None]] = []
        self._secrets: tuple[str, ...] = ()
        self._saved: Life | None = None

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
        wait = LONGEST_WAIT_SECONDS if due is None else due
        try:
            async with asyncio.timeout(max(0.0, min(wait, LONGEST_WAIT_SECONDS))):
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
        """On disk first, then told."""
        if self.life == before and self._saved is not None:
            return
        lasting = replace(self.life, progress=None, moved_at=0.0, idle_looks=0)
        if lasting != self._saved:
            await asyncio.to_thread(self._host.store.save, self.life)
            self._saved = lasting
        if self.life.phase != before.phase:
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
        self._host.changed(self.life)

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

    async def _resume(self, group: asyncio.TaskGroup) -> None:
        """Go on from the state file: adopt what lives. What died meanwhile is told as its end."""
        if self.life.phase in ("failed", "stopped"):
            await self._keep(self.life)
            return
        found = self.life.process or await asyncio.to_thread(process.find, self._mark())
        if found is None or found.leader.boot_id != proc.boot_id():
            await self._resume_without(group)
            return
        if proc.is_alive(found.engine):
            await self._adopt(found)
        self._watch(found, group)
        if self.life.phase == "stopping":
            await self._do("terminate", group)

    async def _adopt(self, found: Process) -> None:
        environ = proc.environ(found.engine.pid)
        self._secrets = secrets.held_by(self.life.order.launch.env, environ)
        before = self.life
        self.life = shard.adopted(before, found, self._environment_version(), clock.now())
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

    async def _start(self, group: asyncio.TaskGroup) -> None:
        started = await self._try_start()
        if isinstance(started, LastError):
            await self._handle(shard.Refused(started), group)
            return
        await self._handle(started, group)
        self._watch(started.process, group)

    async def _try_start(self) -> shard.Started | LastError:
        launch, store = self.life.order.launch, self._host.store
        environment = self._environment()
        if isinstance(environment, LastError):
            return environment
        command = self._adapter.command(launch, environment)
        resolved = secrets.resolve(launch.env, self._host.secrets_folder, os.environ)
        if isinstance(command, LastError):
            return command
        if isinstance(resolved, LastError):
            return resolved
        self._secrets = resolved.secrets
        if (reason := self._obstacle()) is not None:
            return reason
        exit_file = store.exit_file(self.life.replica)
        exit_file.unlink(missing_ok=True)
        engine_log.shorten(self._log_path)
        start = engine_log.size_of(self._log_path)
        env = {**resolved.env, **command.env, **self._mark()}
        try:
            began = await process.spawn(command.argv, env, self._log_path, exit_file)
        except OSError as error:
            return LastError(failure="start_failed", message=f"{command.argv[0]}: {error}")
        return shard.Started(began, environment.version, start)

    def _environment(self) -> Environment | LastError:
        launch = self.life.order.launch
        found = self._host.environments.get(launch.engine)
        if found is None:
            return refusal("engine_missing", f"no engine environment {launch.engine} on this node")
        if launch.version and found.version != launch.version:
            has = found.version or "an unknown version"
            wants = f"{launch.engine} {launch.version} is asked for, this node has {has}"
            return refusal("engine_version", wants)
        return found

    def _environment_version(self) -> str:
        found = self._host.environments.get(self.life.order.launch.engine)
        return found.version if found else ""

    def _obstacle(self) -> LastError | None:
        """What another process holds; it may let go."""
        other = self._host.in_the_way(self.life)
        if other is not None:
            return LastError(failure="gpu_held", message=f"{other} still uses one of its cards")
        launch = self.life.order.launch
        try:
            with socket.socket(_family(launch.host)) as attempt:
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                attempt.bind((launch.host, launch.port))
        except OSError as error:
            name = "port_in_use" if error.errno == errno.EADDRINUSE else "address_unusable"
            at = f"{launch.host}:{launch.port}"
            return LastError(failure=name, message=f"{at}: {error.strerror}")
        return None

    def _mark(self) -> dict[str, str]:
        return process.mark(self.life, self._host.store.data)

    @property
    def _log_path(self) -> Path:
        return self._host.store.log(self.life.replica)

    def _watch(self, running: Process, group: asyncio.TaskGroup) -> None:
        self._watchers = [
            group.create_task(self._await_end(running, self._mark())),
            group.create_task(self._ask(running)),
        ]

    def _unwatch(self) -> None:
        for task in self._watchers:
            task.cancel()
        self._watchers = []
        self.load = EngineLoad()

    async def _await_end(self, running: Process, marked: Mapping[str, str]) -> None:
        await process.ended(running.engine)
        await process.kill_session(running.leader, marked)
        code = process.exit_code(self._host.store.exit_file(self.life.replica))
        tail = EngineLog(self._log_path, self.life.log_start).tail()
        shown = lines(tail, self._secrets)
        served = self.life.phase in ("ready", "stopping")
        self.send(shard.Exited(diagnose(shown, code, self._adapter, served=served)))

    async def _ask(self, running: Process) -> None:
        await self._until_it_serves(running)
        await self._while_it_serves()

    async def _until_it_serves(self, running: Process) -> None:
        launch, output = self.life.order.launch, EngineLog(self._log_path, self.life.log_start)
        pause, done, told = FIRST_LOOK_SECONDS, 0, ""
        while self.life.phase in ("starting", "loading"):
            text = output.fresh()
            reached = progress(lines(text, self._secrets), self._adapter.steps)
            health = await probe.health(self._host.http, launch, self._adapter)
            if reached is None and health == "loading" and self.life.progress is None:
                reached = Progress(step="loading")
            work = proc.work_done([running.engine.pid])
            if health == "ready":
                self.send(shard.Moved(None))  # Its first answer may take longer than a stall.
                reason = await self._fault(running)
                if not reason:
                    self.send(shard.Answered())
                    return
                reached = Progress(step=f"not ready: {reason}") if reason != told else None
                told, text = reason, ""  # What it logs now is our own asking.
            if reached is not None or text or work > done:
                self.send(shard.Moved(reached))
            done = max(done, work)
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, LONGEST_LOOK_SECONDS)

    async def _fault(self, running: Process) -> str:
        """Empty: the right model answered, and the process that listens there is ours."""
        reason = await probe.fault(self._host.http, self.life.order.launch)
        if reason:
            return "".join(lines(reason, self._secrets))
        session = proc.members(running.leader, self._mark())
        port = self.life.order.launch.port
        ours = proc.listens([member.pid for member in session], port)
        return "" if ours else f"port {port} belongs to another process"

    async def _while_it_serves(self) -> None:
        """Only the end of the engine ends it: a drain goes on while it is `ready`."""
        launch, dead = self.life.order.launch, 0
        while True:
            load = await probe.scrape(self._host.http, launch, self._adapter)
            self.load = load or EngineLoad()
            self.send(shard.Looked(self._busy(load)))
            engine_log.shorten(self._log_path)
            dead = 0 if load is not None else await self._dead_looks(dead)
            if dead == DEAD_LOOKS:
                message = f"its process lives and port {launch.port} serves nobody"
                self.send(shard.Unhealthy(LastError(failure="engine_dead", message=message)))
            await asyncio.sleep(SCRAPE_SECONDS)

    def _busy(self, load: EngineLoad | None) -> bool | None:
        if load is None:
            return None
        if load.running is None:
            return proc.connections(self.life.order.launch.port) > 0
        return load.running + (load.waiting or 0.0) > 0

    async def _dead_looks(self, dead: int) -> int:
        said = await probe.health(self._host.http, self.life.order.launch, self._adapter)
        return dead + 1 if said in ("dead", "refused") else dead


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
