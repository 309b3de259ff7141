import asyncio
import time
from typing import Any

import msgspec

from tests.support.fleet import Fleet
from tests.support.load import streaming
from tests.support.refold import fold_log


async def served_state(fleet: Fleet) -> tuple[int, bytes]:
    """What control serves, with its sequence, byte for byte."""
    headers = {"Authorization": f"Bearer {fleet.token()}"}
    url = f"http://{fleet.address('control-1')}/api/v1/state"
    async with fleet.http.get(url, headers=headers) as response:
        frame = msgspec.json.decode(await response.read(), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(frame["asOfSeq"], type=int), bytes(frame["state"])


async def test_kill_nine_of_control_under_load_fails_nothing_and_restarts_nothing(
    serving: Fleet,
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


async def test_twenty_restarts_with_a_loading_replica_move_nothing(
    serving: Fleet,
) -> None:  # spec: L2
    fleet = serving
    control = fleet.programs["control-1"]
    before = await placements(fleet)
    async with streaming(fleet.base_url(), "tiny", clients=2) as load:
        for _ in range(20):
            control.kill()
            control.start()
            await fleet.until_up()
            await asyncio.sleep(0)
    assert load.failures() == {}
    assert await placements(fleet) == before


async def placements(fleet: Fleet) -> dict[str, Any]:
    """Every replica document, and every engine process."""
    answer = await fleet.ask("state")
    assert answer is not None
    documents = answer["state"]["documents"]
    replicas = {k: v["document"] for k, v in documents.items() if k.startswith("replicas.")}
    return replicas | {"pids": await fleet.engine_pids()}
