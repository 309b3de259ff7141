"""The fleet that tests start from: one control, one router, two nodes with one replica each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.tiny_gguf import tiny_gguf as tiny_gguf


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[LiveFleet]:
    """Control, router and two agents, running; no catalog yet."""
    async with LiveFleet(tmp_path) as made:
        made.add_control()
        made.add_router()
        made.add_node("node-1")
        made.add_node("node-2")
        await made.until_up()
        await made.until_nodes("node-1", "node-2")
        yield made


@pytest.fixture
async def serving(fleet: LiveFleet, tiny_gguf: Path) -> LiveFleet:
    """The fleet with `tiny` ready twice, one replica on each node, answering through the router."""
    await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf)))
    rows = await fleet.until_ready("tiny", 2)
    assert {row["shards"][0]["node"] for row in rows} == {"node-1", "node-2"}
    await fleet.until_served("tiny")
    return fleet
