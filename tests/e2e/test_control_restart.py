import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.load import streaming
from tests.support.refold import fold_log
from tests.support.waiting import eventually


async def served_state(fleet: LiveFleet) -> tuple[int, bytes]:
    """What control serves, with its sequence, byte for byte."""
    headers = {"Authorization": f"Bearer {fleet.token()}"}
    url = f"http://{fleet.address('control-1')}/api/v1/state"
    async with fleet.http.get(url, headers=headers) as response:
        frame = msgspec.json.decode(await response.read(), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(frame["asOfSeq"], type=int), bytes(frame["state"])


async def test_kill_nine_of_control_under_load_fails_nothing_and_restarts_nothing(
    serving: LiveFleet,
) -> None:  # spec: L2, L4, R1, T9
    fleet = serving
    control = fleet.programs["control-1"]
    pids = await fleet.engine_pids()
    taken: list[tuple[int, bytes]] = []
    async with streaming(fleet.base_url(), "tiny") as load:
        for _ in range(3):
            await load.more(20)
            taken.append(await served_state(fleet))
            control.kill()
            await load.more(20)
            started = time.monotonic()
            control.start()
            await fleet.until_up()
            print(f"control leads {time.monotonic() - started:.2f} s after its start")  # noqa: T201
            taken.append(await served_state(fleet))
    print(f"{len(load.outcomes)} requests, failures: {dict(load.failures())}")  # noqa: T201
    assert load.failures() == {}
    assert await fleet.engine_pids() == pids
    for sequence, dump in taken:
        assert dump == await fold_log(fleet.nats.url, sequence), f"at {sequence}"


SERVER = f"{sys.executable} -m services.agent.llamacpp_server"
ENGINES = """
[agent.engines.llamacpp]
command = "{server}"
version = "1"
[agent.engines.held]
kind = "llamacpp"
command = "{held}"
version = "1"
"""
HELD = """#!/bin/sh
echo "load_model: loading model" >&2
while [ ! -e {gate} ]; do sleep 0.1; done
exec {server} "$@"
"""
"""An engine that loads for as long as a test wants it to."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What held engines wait for, as a file."""
    return tmp_path / "gate"


@pytest.fixture
async def loading(tmp_path: Path, tiny_gguf: Path, gate: Path) -> AsyncIterator[LiveFleet]:
    """`tiny` serves; `slow` is placed and loads until the gate is there."""
    held, settings = tmp_path / "held", tmp_path / "flotilla.toml"
    held.write_text(HELD.format(gate=gate, server=SERVER))
    held.chmod(0o755)
    settings.write_text(ENGINES.format(server=SERVER, held=held))
    async with LiveFleet(tmp_path) as fleet:
        fleet.add_control()
        fleet.add_router()
        for node in ("node-1", "node-2"):
            fleet.add_node(node, CONFIG=str(settings))
        await fleet.until_up()
        await fleet.until_nodes("node-1", "node-2")
        slow = tiny_entry("slow", tiny_gguf, replicas=1, engine="held")
        await fleet.apply(
            f"engines: {{held: {{kind: llamacpp}}}}\n{catalog_of(slow)}"
            f"{tiny_entry('tiny', tiny_gguf)}"
        )
        await fleet.until_ready("tiny", 2)
        await fleet.until_served("tiny")
        await eventually(lambda: is_loading(fleet, "slow"), "slow loads")
        yield fleet


async def test_twenty_restarts_with_a_loading_replica_move_nothing(
    loading: LiveFleet, gate: Path
) -> None:  # spec: L2
    fleet = loading
    control = fleet.programs["control-1"]
    before = await standing(fleet)
    async with streaming(fleet.base_url(), "tiny", clients=2) as load:
        for _ in range(20):
            control.kill()
            control.start()
            await fleet.until_up()
            assert await is_loading(fleet, "slow")
        after = await standing(fleet)
        gate.touch()  # noqa: ASYNC240 - an empty file.
        (slow,) = await fleet.until_ready("slow", 1)
        await fleet.until_served("slow")
    assert load.failures() == {}
    assert after == before
    assert slow["replica"] in (await fleet.engine_pids())
    assert (await standing(fleet))["pids"] == before["pids"]
    assert (await standing(fleet))["replicas"] == before["replicas"]


async def is_loading(fleet: LiveFleet, model: str) -> bool:
    answer = await fleet.ask("replicas")
    rows = [row for row in (answer or {"items": []})["items"] if row["model"] == model]
    return [row["phase"] for row in rows] == ["loading"]


async def standing(fleet: LiveFleet) -> dict[str, Any]:
    """Every replica and assignment document, and every engine process, also a loading one's."""
    answer = await fleet.ask("state")
    assert answer is not None
    documents = {k: v["document"] for k, v in answer["state"]["documents"].items()}
    shards = [document for name, document in documents.items() if name.startswith("shards.")]
    return {
        "replicas": {k: v for k, v in documents.items() if k.startswith("replicas.")},
        "assignments": {k: v for k, v in documents.items() if k.startswith("assignments.")},
        "pids": {s["replica"]: (s["attempt"], s["run"], s["process"]["pid"]) for s in shards},
    }
