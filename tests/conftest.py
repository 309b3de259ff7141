"""Fixtures shared by all tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from hypothesis import settings

from services.log import streams
from services.log.connect import Connection
from tests.support.examples import examples
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy

settings.register_profile("here", max_examples=examples(100))
settings.load_profile("here")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A program run in this process sets logging up for itself, to a stream that then closes."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


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


@pytest_asyncio.fixture
async def proxy(nats: NatsServer) -> AsyncIterator[Proxy]:
    """A way to `nats` that can lose messages."""
    made = Proxy(nats.port)
    await made.start()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def lossy(proxy: Proxy, log: Connection) -> AsyncIterator[Connection]:
    """A connection through `proxy`, to where the streams exist."""
    made = Connection(proxy.url, "lossy")
    await made.start()
    await made.wait_connected()
    yield made
    await made.close()
