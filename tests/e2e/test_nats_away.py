import asyncio
from typing import Any

from tests.support.fleet import LiveFleet
from tests.support.load import streaming
from tests.support.waiting import eventually

AWAY_SECONDS = 20


async def conditions(fleet: LiveFleet) -> dict[str, str]:
    answer = await fleet.ask("nodes")
    return {row["node"]: row["condition"] for row in (answer or {"items": []})["items"]}


async def test_nats_away_under_load_loses_nothing(serving: LiveFleet) -> None:  # spec: T9, L3, A5
    fleet = serving
    pids = await fleet.engine_pids()
    async with streaming(fleet.base_url(), "tiny") as load:
        await load.at_least(20)
        fleet.nats.kill()
        away_until = asyncio.get_running_loop().time() + AWAY_SECONDS
        router = fleet.programs["router-1"]
        while asyncio.get_running_loop().time() < away_until:
            await load.more(5)
        assert load.failures() == {}
        fleet.nats.start()
        await eventually(lambda: all_routers_current(fleet), "the router beats again")
        await load.more(20)
    assert router.running
    assert load.failures() == {}
    assert await conditions(fleet) == {"node-1": "alive", "node-2": "alive"}
    assert await fleet.engine_pids() == pids
    assert await verdicts_written(fleet) == []


async def test_a_router_restarted_while_nats_is_away_serves_from_its_disk_copy(
    serving: LiveFleet,
) -> None:  # spec: T9
    fleet = serving
    router = fleet.programs["router-1"]
    replicas = set(await fleet.engine_pids())
    await eventually(lambda: copied(fleet, replicas), "both replicas are in the disk copy")
    fleet.nats.kill()
    router.kill()
    router.start()
    await fleet.until_served("tiny")
    async with streaming(fleet.base_url(), "tiny") as load:
        await load.at_least(40)
    assert load.failures() == {}
    fleet.nats.start()
    await eventually(lambda: all_routers_current(fleet), "the router beats again")


async def all_routers_current(fleet: LiveFleet) -> bool:
    answer = await fleet.ask("status")
    return bool(answer and answer.get("routers") and answer["leading"])


async def copied(fleet: LiveFleet, replicas: set[str]) -> bool:
    copy = fleet.root / "router-1" / "router" / "table.json"
    text = await asyncio.to_thread(copy.read_text)
    return all(replica in text for replica in replicas)


async def verdicts_written(fleet: LiveFleet) -> list[Any]:
    """Verdict documents of anything but alive."""
    answer = await fleet.ask("state")
    assert answer is not None
    return [
        held["document"]
        for name, held in answer["state"]["documents"].items()
        if name.startswith("verdicts.") and held["document"]["condition"] == "lost"
    ]
