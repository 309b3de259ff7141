import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import LiveFleet, catalog_of, engines_under, tiny_entry
from tests.support.load import streaming
from tests.support.waiting import eventually

CLIENTS = 4
ROUNDS = int(os.environ.get("NODE_DEATHS", "3"))


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_killing_the_node_under_a_live_replica_costs_only_its_begun_streams(
    fleet: LiveFleet, tiny_gguf: Path, round_: int
) -> None:  # spec: R2, R3, T5
    await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf, patience="3s")))
    rows = await fleet.until_ready("tiny", 2)
    await fleet.until_served("tiny")
    victim = rows[round_ % 2]["shards"][0]["node"]
    survivor = "node-2" if victim == "node-1" else "node-1"
    async with streaming(fleet.base_url(), "tiny", clients=CLIENTS, max_tokens=48) as load:
        await load.at_least(100)
        fleet.programs[victim].kill()
        for pid in engines_under(fleet.root / victim):
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: nothing_left_on(fleet, victim), f"nothing is left on {victim}")
        rebuilt = await fleet.until_ready("tiny", 2)
        await load.at_least(max(300, len(load.outcomes) + 50))
    print(f"{len(load.outcomes)} requests, {dict(load.failures())}")  # noqa: T201
    assert load.count("refused") == 0, load.failures()
    assert load.count("cut") == 0, load.failures()
    assert load.count("broken") <= CLIENTS, load.failures()
    assert {row["shards"][0]["node"] for row in rebuilt} == {survivor}


async def nothing_left_on(fleet: LiveFleet, node: str) -> bool:
    """No replica, no endpoint, no assigned shard names the dead node."""
    answer = await fleet.ask("state")
    if answer is None:
        return False
    documents: dict[str, Any] = answer["state"]["documents"]
    replicas = [v["document"] for k, v in documents.items() if k.startswith("replicas.")]
    shards = [v["document"] for k, v in documents.items() if k.startswith("endpoints.")]
    assigned = documents.get(f"assignments.{node}", {"document": {"shards": []}})
    return (
        all(plan["node"] != node for replica in replicas for plan in replica["shards"])
        and all(e["node"] != node for shard in shards for e in shard["endpoints"])
        and assigned["document"]["shards"] == []
    )
