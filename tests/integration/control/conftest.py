"""Real control services on a real nats-server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.ids import ControlId
from services.control.damage import SeenFile
from services.control.leader import Leadership
from services.control.loop import Loop
from services.log.connect import Connection
from tests.support.control import Controls
from tests.support.nats_server import NatsServer
from tests.support.waiting import until


@pytest.fixture
def controls(nats: NatsServer, tmp_path: Path) -> Iterator[Controls]:
    """Started by the test, killed with it."""
    made = Controls(nats, tmp_path)
    yield made
    made.kill()


@pytest_asyncio.fixture
async def leading(
    lossy: Connection, tmp_path: Path
) -> AsyncIterator[tuple[Loop, asyncio.Task[None]]]:
    """A loop in this process, behind `proxy`."""
    leadership = Leadership(ControlId("control-1"), "start-1", "127.0.0.1:7400")
    loop = Loop(lossy, leadership, SeenFile(tmp_path / "seen.json"), 1.0)
    task = asyncio.ensure_future(loop.run())
    await until(lambda: loop.leading)
    yield loop, task
    task.cancel()
    await asyncio.wait([task])
