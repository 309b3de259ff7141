"""A second, empty server beside the one with the log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from services.log.connect import Connection
from services.log.door import Door
from tests.support.nats_server import NatsServer


@pytest_asyncio.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[Connection]:
    """A connection to an empty NATS, without streams."""
    server = NatsServer(tmp_path / "elsewhere")
    server.start()
    made = Connection(Door(url=server.url), "test")
    await made.start()
    await made.wait_connected()
    yield made
    await made.close()
    server.kill()
