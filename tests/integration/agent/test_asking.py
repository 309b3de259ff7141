"""What is asked of an engine, and what is told of it, with an HTTP server in the engine's place."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest_asyncio
from aiohttp import web
from msgspec.structs import replace

from schemas.documents import Progress
from services.agent import clock
from services.agent.asking import Asking
from services.agent.disk import Disk
from services.agent.host import Host
from services.agent.probe import session
from services.agent.shard import Event, Life, Moved, Process, begin
from services.agent.store import Store
from services.runtime import proc
from tests.support.ports import free_port
from tests.support.shards import an_order
from tests.support.waiting import until

CANARY = "c4n4ry-v4lue"


class Slow:
    """Healthy at once; its first answer waits until it may go, and then is of another model."""

    def __init__(self) -> None:
        self.port = free_port()
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _request: web.Request) -> web.Response:
        self.asked.set()
        await self.may_answer.wait()
        return web.json_response({"data": [{"id": CANARY}]})


@pytest_asyncio.fixture
async def slow() -> AsyncIterator[Slow]:
    made, app = Slow(), web.Application()
    app.add_routes([web.get("/health", made.health), web.get("/v1/models", made.models)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    made.may_answer.set()
    await runner.cleanup()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with session() as made:
        yield made


def a_life(port: int) -> Life:
    identity = proc.identify(os.getpid())
    assert identity is not None
    life, _ = begin(an_order("/m.gguf", port), 0, clock.now())
    return replace(life, process=Process(leader=identity, engine=identity))


def asking(
    life: Life, secrets: tuple[str, ...] | None, data: Path, http: aiohttp.ClientSession
) -> tuple[Asking, list[Event]]:
    host = Host(
        store=Store(data),
        disk=Disk(),
        environments={},
        secrets_folder=data,
        http=http,
        source=random.Random(1),
        changed=lambda _life: None,
        in_the_way=lambda _life: None,
        failed=lambda _replica, _said: None,
    )
    sent: list[Event] = []
    assert life.process is not None
    return Asking(life.process, secrets, host, lambda: life, sent.append), sent


@asynccontextmanager
async def running(asks: Asking) -> AsyncGenerator[None]:
    task = asyncio.ensure_future(asks.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_load_that_is_asked_for_its_first_answer_has_moved(
    slow: Slow, http: aiohttp.ClientSession, tmp_path: Path
) -> None:  # spec: R6
    asks, sent = asking(a_life(slow.port), (), tmp_path, http)
    async with running(asks):
        await asyncio.wait_for(slow.asked.wait(), 30)
        assert sent == [Moved(None)]


async def test_an_answer_is_told_without_the_runs_secrets(
    slow: Slow, http: aiohttp.ClientSession, tmp_path: Path
) -> None:  # spec: A3 W2
    asks, sent = asking(a_life(slow.port), (CANARY,), tmp_path, http)
    slow.may_answer.set()
    step = Moved(Progress(step="not ready: it serves [secret], not tiny"))
    async with running(asks):
        await until(lambda: step in sent)


async def test_no_answer_is_told_where_the_runs_secrets_are_not_known(
    slow: Slow, http: aiohttp.ClientSession, tmp_path: Path
) -> None:  # spec: A3 W2
    asks, sent = asking(a_life(slow.port), None, tmp_path, http)
    slow.may_answer.set()
    async with running(asks):
        await until(lambda: any(isinstance(event, Moved) and event.progress for event in sent))
    assert "withheld" in repr(sent)
    assert CANARY not in repr(sent)
