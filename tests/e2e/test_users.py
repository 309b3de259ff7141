"""A fleet whose programs are users of NATS, each with the rights of its role and no others."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.tiny_gguf import tiny_gguf as tiny_gguf
from tests.support.waiting import eventually


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[LiveFleet]:
    async with LiveFleet(tmp_path, users=True) as made:
        made.add_control()
        made.add_router()
        made.add_node("node-1")
        made.add_node("node-2")
        await made.until_up()
        await made.until_nodes("node-1", "node-2")
        yield made


async def test_every_program_does_its_work_with_the_rights_of_its_role(
    guarded: LiveFleet, tiny_gguf: Path
) -> None:
    # spec: S1
    fleet = guarded
    await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf)))
    rows = await fleet.until_ready("tiny", 2)
    assert {row["shards"][0]["node"] for row in rows} == {"node-1", "node-2"}
    await fleet.until_served("tiny")
    engines = await fleet.engine_pids()

    for name in ("control-1", "router-1", "node-1"):
        fleet.programs[name].kill()
        fleet.programs[name].start()
    fleet.nats.kill()
    fleet.nats.start()
    await fleet.until_up()
    await fleet.until_ready("tiny", 2)
    await fleet.until_served("tiny")
    assert await fleet.engine_pids() == engines

    await fleet.apply(catalog_of(tiny_entry("other", tiny_gguf)), prune=("tiny",))
    await fleet.until_ready("other", 2)
    await fleet.until_served("other")
    await eventually(lambda: of_model(fleet, "tiny"), "nothing is left of the old model")
    for program in fleet.programs.values():
        assert "nats.denied" not in program.log.read_text(), program.tail()
    status = await fleet.ask("status")
    assert status is not None
    assert not [line for line in status["warnings"] if "permissions" in line]


async def of_model(fleet: LiveFleet, model: str) -> bool:
    """Whether no replica of it is shown any more."""
    answer = await fleet.ask("replicas")
    return answer is not None and all(row["model"] != model for row in answer["items"])


async def test_a_program_with_anothers_rights_says_what_is_denied(tmp_path: Path) -> None:
    async with LiveFleet(tmp_path, users=True) as fleet:
        assert fleet.doors is not None
        fleet.add_control()
        await fleet.until_up()
        fleet.add_node("node-1")
        await fleet.until_nodes("node-1")
        as_node_1 = {
            key.removeprefix("FLOTILLA_"): value
            for key, value in fleet.doors.settings("agent.node-1").items()
        }
        fleet.add_node("node-2", **as_node_1)

        async def told() -> bool:
            try:
                async with fleet.http.get(f"http://{fleet.address('node-2')}/readyz") as answer:
                    return "does not let user agent.node-1 publish" in await answer.text()
            except (aiohttp.ClientError, OSError):
                return False

        await eventually(told, "it says what it may not do")
        await fleet.until_nodes("node-1")
