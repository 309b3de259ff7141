import asyncio
from pathlib import Path

import aiohttp

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.load import Load, streaming
from tests.support.waiting import eventually


async def listed(fleet: LiveFleet) -> list[str]:
    async with fleet.http.get(f"{fleet.base_url()}/models") as response:
        return sorted(entry["id"] for entry in (await response.json())["data"])


async def test_twenty_swaps_under_load_fail_nothing(serving: LiveFleet, tiny_gguf: Path) -> None:
    # spec: C2, C3, T2
    fleet = serving
    pids = await fleet.engine_pids()
    async with streaming(fleet.base_url(), "tiny") as load:
        for swap in range(20):
            await load.more(5)
            answer = await fleet.apply(
                catalog_of(tiny_entry("tiny", tiny_gguf, aliases=f"[alias-{swap}]"))
            )
            assert answer["changed"]
    assert load.failures() == {}
    assert await fleet.engine_pids() == pids


async def test_a_model_is_added_and_removed_while_others_stream(
    serving: LiveFleet, tiny_gguf: Path
) -> None:  # spec: C2, C5, C9
    fleet = serving
    both = catalog_of(tiny_entry("tiny", tiny_gguf), tiny_entry("second", tiny_gguf, replicas=1))
    only_tiny = catalog_of(tiny_entry("tiny", tiny_gguf))
    async with streaming(fleet.base_url(), "tiny") as load:
        await fleet.apply(both)
        await fleet.until_served("second")
        assert await listed(fleet) == ["second", "tiny"]
        status, refusal = await fleet.call("catalog", {"source": only_tiny})
        assert status == 409
        assert "second" in refusal["message"]
        await fleet.apply(only_tiny, prune=("second",))

        async def torn_down() -> bool:
            answer = await fleet.ask("models")
            return answer is not None and [m["model"] for m in answer["items"]] == ["tiny"]

        await eventually(torn_down, "no trace of `second`")
        assert await listed(fleet) == ["tiny"]
        async with fleet.http.post(
            f"{fleet.base_url()}/chat/completions", json={"model": "second", "messages": []}
        ) as response:
            assert response.status == 404
    assert load.failures() == {}
    assert all(replica.startswith("tiny-") for replica in await fleet.engine_pids())


async def test_a_request_in_flight_ends_under_the_catalog_it_began_with(
    serving: LiveFleet, tiny_gguf: Path
) -> None:  # spec: C5, C8
    fleet = serving
    both = catalog_of(tiny_entry("tiny", tiny_gguf), tiny_entry("going", tiny_gguf, replicas=1))
    await fleet.apply(both)
    await fleet.until_served("going")
    load = Load(fleet.base_url(), "going")
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        long = group.create_task(load.request(session, max_tokens=1500))
        await eventually(lambda: has_bytes(load), "the long stream has begun", pause_seconds=0.005)
        await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf)), prune=("going",))

        async def unknown() -> bool:
            return (await load.request(session, max_tokens=1)).detail.startswith("404")

        await eventually(unknown, "the name has left the router")
        assert not long.done(), "the long stream ended too early to show anything"
    assert long.result().kind == "ok", long.result()


async def test_replicas_zero_keeps_the_entry_and_answers_stopped(
    serving: LiveFleet, tiny_gguf: Path
) -> None:  # spec: C9
    fleet = serving
    await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf, replicas=0)))
    load = Load(fleet.base_url(), "tiny")
    async with aiohttp.ClientSession() as session:

        async def stopped() -> bool:
            outcome = await load.request(session, max_tokens=1)
            return outcome.detail.startswith("503") and "model_stopped" in outcome.detail

        await eventually(stopped, "503 model_stopped")
    assert await listed(fleet) == ["tiny"]
    await eventually(lambda: no_engines(fleet), "all engines are stopped")


async def has_bytes(load: Load) -> bool:
    return load.streaming > 0


async def no_engines(fleet: LiveFleet) -> bool:
    return await fleet.engine_pids() == {}
