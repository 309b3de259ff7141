"""Real control services on a real nats-server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.control import Controls
from tests.support.nats_server import NatsServer


@pytest.fixture
def controls(nats: NatsServer, tmp_path: Path) -> Iterator[Controls]:
    """Started by the test, killed with it."""
    made = Controls(nats, tmp_path)
    yield made
    made.kill()
