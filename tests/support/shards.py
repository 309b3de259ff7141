"""One shard on this machine, run by the agent's own runner with the real llama.cpp engine."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from msgspec.structs import replace

from schemas.documents import AssignedShard, LaunchSpec, SecretRef
from schemas.ids import EngineName, EventId, ModelName, ReplicaId
from services.agent import clock, process
from services.agent.disk import Disk
from services.agent.environments import installed
from services.agent.host import Host
from services.agent.probe import session
from services.agent.runner import Runner
from services.agent.shard import Event, Life, Process, begin
from services.agent.store import Store
from services.runtime import proc
from tests.support.waiting import until


def an_order(
    source: str,
    port: int,
    *,
    attempt: int = 1,
    args: dict[str, str] | None = None,
    env: dict[str, str | SecretRef] | None = None,
) -> AssignedShard:
    """What an assignment says of one shard."""
    launch = LaunchSpec(
        engine=EngineName("llamacpp"),
        kind="llamacpp",
        source=source,
        served_name=ModelName("tiny"),
        host="127.0.0.1",
        port=port,
        cores=1.0,
        args=args or {},
        env=env or {},
    )
    return AssignedShard(
        replica=ReplicaId("tiny-0-1"),
        model=ModelName("tiny"),
        attempt=attempt,
        goal="run",
        launch=launch,
        cause=EventId("cause-1"),
    )


class OneShard:
    """A runner that can be killed and started again over the same folder, as its agent would be."""

    def __init__(self, data: Path, http: aiohttp.ClientSession) -> None:
        self.store = Store(data)
        self.disk = Disk()
        self.http = http
        self.environments = {each.name: each for each in installed()}
        self.in_the_way: ReplicaId | None = None
        self.told: list[Life] = []
        self.tails: list[tuple[ReplicaId, str]] = []
        self.runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, order: AssignedShard) -> None:
        """As on the first assignment."""
        life, _ = begin(order, slot=0, now=clock.now())
        self._run(life)

    def resume(self) -> None:
        """As a new agent does, from the state file."""
        (life,) = self.store.load()
        self._run(life)

    def _run(self, life: Life) -> None:
        host = Host(
            store=self.store,
            disk=self.disk,
            environments=self.environments,
            secrets_folder=self.store.data / "secrets",
            http=self.http,
            source=random.Random(1),
            changed=self.told.append,
            in_the_way=lambda _life: self.in_the_way,
            failed=lambda replica, said: self.tails.append((replica, said)),
        )
        self.told.clear()
        self.runner = Runner(life, host)
        self._task = asyncio.ensure_future(self.runner.run())

    def send(self, event: Event) -> None:
        assert self.runner is not None
        self.runner.send(event)

    @property
    def life(self) -> Life:
        """As last told."""
        return self.told[-1]

    @property
    def process(self) -> Process:
        found = self.life.process
        assert found is not None
        return found

    async def until_phase(self, phase: str) -> Life:
        await self.until(lambda: self.told and self.life.phase == phase)
        return self.life

    async def until(self, condition: Callable[[], object]) -> None:
        """Fails with the runner's own error, should it end."""
        assert self._task is not None
        waiting = asyncio.ensure_future(until(condition))
        await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done() and not waiting.done():
            waiting.cancel()
            self._task.result()
        await waiting

    async def end_agent(self) -> None:
        """Its engine lives on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def phases(self) -> list[str]:
        """In order, without repeats."""
        return [
            life.phase
            for at, life in enumerate(self.told)
            if at == 0 or life.phase != self.told[at - 1].phase
        ]


@asynccontextmanager
async def one_shard(data: Path) -> AsyncGenerator[OneShard]:
    """No process of its survives the test."""
    async with session() as http:
        shard = OneShard(data, http)
        try:
            yield shard
        finally:
            await shard.end_agent()
            kill_engines(data)


def kill_engines(data: Path) -> None:
    """Every process that carries the mark of this folder's agent."""
    for each in proc.everybody():
        if proc.environ(each.pid).get(process.AGENT) == str(data.resolve()):
            os.kill(each.pid, signal.SIGKILL)


def engines(data: Path) -> list[int]:
    """Pids of every process that carries the mark of this folder's agent."""
    return [
        each.pid
        for each in proc.everybody()
        if proc.environ(each.pid).get(process.AGENT) == str(data.resolve())
    ]


def drained(order: AssignedShard, grace_seconds: float | None = None) -> AssignedShard:
    """The same with goal drain."""
    return replace(order, goal="drain", grace_seconds=grace_seconds)
