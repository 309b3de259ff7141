import asyncio
import os
import time
from pathlib import Path
from typing import Any

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.load import streaming
from tests.support.waiting import eventually

CONTROL_OFF_SECONDS = float(os.environ.get("CONTROL_OFF_SECONDS", "6"))
"""Longer than a node that is not heard needs to become unreachable."""


async def test_kill_nine_of_an_agent_leaves_its_engines_serving_and_the_next_one_adopts_them(
    serving: LiveFleet,
) -> None:  # spec: A4, A5
    fleet = serving
    pids = await fleet.engine_pids()
    agent = fleet.programs["node-1"]
    async with streaming(fleet.base_url(), "tiny") as load:
        await load.at_least(20)
        agent.kill()
        await load.more(20)
        agent.start()
        info = await adopted(fleet, "node-1")
        await load.more(20)
    assert load.failures() == {}
    assert await fleet.engine_pids() == pids
    assert [session["replica"] for session in info["sessions"]] == [
        replica for replica, pid in pids.items() if pid == info["sessions"][0]["process"]["pid"]
    ]


async def adopted(fleet: LiveFleet, node: str, before: str = "") -> dict[str, Any]:
    """The node as an agent describes it that found engines running, and is not `before`."""

    async def described() -> dict[str, Any] | None:
        answer = await fleet.ask("state")
        documents: dict[str, Any] = {} if answer is None else answer["state"]["documents"]
        info: dict[str, Any] = documents.get(f"infos.{node}", {"document": {}})["document"]
        return info if info.get("sessions") and info["incarnation"] != before else None

    return await eventually(described, f"the new agent of {node} reports what it found")


async def picture(fleet: LiveFleet) -> dict[str, Any]:
    """All that an operator is shown of nodes, models and replicas, ages left out."""
    status = await fleet.ask("status")
    rows = await fleet.ask("replicas")
    assert status is not None
    assert rows is not None
    counts = {key: status[key] for key in ("nodes", "models", "replicas", "attention")}
    return counts | {
        row["replica"]: (row["phase"], row["routed"], row["address"]) for row in rows["items"]
    }


# case: CR-01
async def test_control_comes_back_and_agents_are_replaced_one_by_one_under_traffic(
    tmp_path: Path, tiny_gguf: Path
) -> None:  # spec: L2, A4, R1, T9
    async with LiveFleet(tmp_path) as fleet:
        control = fleet.add_control()
        fleet.add_router()
        nodes = ("node-1", "node-2", "node-3")
        for node in nodes:
            fleet.add_node(node)
        await fleet.until_up()
        await fleet.until_nodes(*nodes)
        await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf, replicas=6, patience="10s")))
        await fleet.until_ready("tiny", 6)
        await fleet.until_served("tiny")
        pids, before = await fleet.engine_pids(), await picture(fleet)
        async with streaming(fleet.base_url(), "tiny", clients=2) as load:
            await load.more(10)
            control.kill()
            await asyncio.sleep(CONTROL_OFF_SECONDS)
            await load.more(10)
            began = time.monotonic()
            control.start()
            await fleet.until_up()
            assert await picture(fleet) == before  # At once: it is in the log.
            print(f"whole {time.monotonic() - began:.1f} s after its start")  # noqa: T201
            for node in nodes:
                answer = await fleet.ask("state")
                assert answer is not None
                old = answer["state"]["documents"][f"infos.{node}"]["document"]["incarnation"]
                agent = fleet.programs[node]
                agent.kill()
                agent.start()
                found = await adopted(fleet, node, old)
                assert len(found["sessions"]) == 2
                await load.more(5)
            await eventually(lambda: is_as(fleet, before), "the picture is whole again")
        assert load.failures() == {}
        assert await fleet.engine_pids() == pids


async def is_as(fleet: LiveFleet, before: dict[str, Any]) -> bool:
    return await picture(fleet) == before
