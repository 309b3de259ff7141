"""Fixtures shared by all tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.log import streams
from services.log.connect import Connection
from tests.support.nats_server import NatsServer


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A real nats-server with an empty store."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture
async def connection(nats: NatsServer) -> AsyncIterator[Connection]:
    """A connection to `nats`, made."""
    made = Connection(nats.url, "test")
    await made.start()
    await made.wait_connected()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def log(connection: Connection) -> Connection:
    """A connection to `nats` where the streams exist."""
    await streams.create(connection)
    return connection
