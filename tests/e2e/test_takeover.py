"""Takeovers between real controls, over real agents, while a catalog is swapped without a pause."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import pytest

from schemas import subjects
from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.refold import read_log
from tests.support.waiting import eventually

ROUNDS = int(os.environ.get("TAKEOVERS", "6"))
CONTROLS = ("control-1", "control-2")


async def leader_of(fleet: LiveFleet, *among: str) -> str:
    """Which of these leads, by its own word."""

    async def leads() -> str | None:
        for name in among or CONTROLS:
            status = await fleet.ask("status", name)
            if status is not None and status["leading"]:
                return name
        return None

    return await eventually(leads, f"one of {among or CONTROLS} leads", pause_seconds=0.02)


@asynccontextmanager
async def swapping(fleet: LiveFleet, base: str) -> AsyncGenerator[list[int]]:
    """Catalogs are applied, one after another, to whoever takes them; the revisions taken."""
    taken: list[int] = []

    async def swap() -> None:
        while True:
            huge = tiny_entry(f"huge-{len(taken) % 2}", fleet.root, 1, cpu="{cores: 4000}")
            body = {"source": base + huge, "pruneAll": True}
            for name in CONTROLS:
                try:
                    status, answer = await fleet.call("catalog", body, name)
                except (aiohttp.ClientError, OSError, TimeoutError):
                    continue
                if status == 200 and answer["changed"]:
                    taken.append(answer["revision"])
                    break
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(swap())
    try:
        yield taken
    finally:
        task.cancel()


async def asked_while_frozen(fleet: LiveFleet, name: str, base: str) -> tuple[int, str]:
    """A write to a control that cannot hear yet that it was superseded."""
    async with fleet.http.post(
        f"http://{fleet.address(name)}/api/v1/catalog",
        headers={"Authorization": f"Bearer {fleet.token(name)}"},
        data=json.dumps({"source": base, "pruneAll": True}),
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=60),
    ) as response:
        return response.status, await response.text()


@pytest.fixture
async def pair(tmp_path: Path, tiny_gguf: Path) -> AsyncGenerator[tuple[LiveFleet, str]]:
    """Two controls, a router, two nodes that serve `tiny`; and the catalog that says so."""
    base = catalog_of(tiny_entry("tiny", tiny_gguf))
    async with LiveFleet(tmp_path) as fleet:
        for name in CONTROLS:
            fleet.add_control(name)
        fleet.add_router()
        fleet.add_node("node-1")
        fleet.add_node("node-2")
        leader = await leader_of(fleet)
        await fleet.until_nodes("node-1", "node-2")
        status, answer = await fleet.call("catalog", {"source": base}, leader)
        assert status == 200, answer
        await fleet.until_ready("tiny", 2)
        yield fleet, base


# spec: L7
async def test_a_leader_that_dies_or_freezes_is_replaced_and_writes_nothing_any_more(
    pair: tuple[LiveFleet, str],
) -> None:
    fleet, base = pair
    pids = await fleet.engine_pids()
    seconds: dict[str, list[float]] = {"SIGSTOP": [], "SIGKILL": []}
    async with swapping(fleet, base) as taken:
        for round_ in range(ROUNDS + max(1, ROUNDS // 5)):
            old = await leader_of(fleet)
            (new,) = set(CONTROLS) - {old}
            count = len(taken)
            await eventually(lambda: more_than(taken, count), "catalogs are swapped")  # noqa: B023
            how = "SIGSTOP" if round_ < ROUNDS else "SIGKILL"
            seconds[how].append(await take_over(fleet, old, new, how, base))
    final = await fleet.ask("status", await leader_of(fleet))
    assert final is not None
    print_times(seconds)
    await check_epochs(fleet.nats.url, final["asOfSeq"])
    assert await fleet.engine_pids() == pids
    fenced = "".join((fleet.logs / f"{name}.log").read_text() for name in CONTROLS)
    print(  # noqa: T201
        f"{len(taken)} swaps; superseded leaders stepped down {fenced.count('control.fenced')} times, "
        f"{fenced.count('wrong last sequence')} of them refused by the server"
    )


async def take_over(fleet: LiveFleet, old: str, new: str, how: str, base: str) -> float:
    """Seconds from the signal until `new` says that it leads; `old` follows once this returns."""
    program = fleet.programs[old]
    began = time.monotonic()
    if how == "SIGKILL":
        program.kill()
        await leader_of(fleet, new)
        took = time.monotonic() - began
        program.start()
    else:
        program.signal(signal.SIGSTOP)
        await leader_of(fleet, new)
        took = time.monotonic() - began
        late = asyncio.ensure_future(asked_while_frozen(fleet, old, base))
        await asyncio.sleep(0)
        program.signal(signal.SIGCONT)
        status, text = await late
        assert status in (307, 503), text
    await eventually(lambda: follows(fleet, old, new), f"{old} follows {new}")
    return took


async def follows(fleet: LiveFleet, name: str, leader: str) -> bool:
    status = await fleet.ask("status", name)
    return status is not None and not status["leading"] and status["leader"] == leader


async def more_than(taken: list[int], count: int) -> bool:
    return len(taken) > count


async def check_epochs(url: str, to: int) -> None:
    """Every decision stands above the claim that it was made under, with no other claim between."""
    fence, decisions, claims = 0, 0, 0
    for at, subject, event in await read_log(url, to):
        if subject == subjects.CONTROL_EPOCH:
            fence, claims = at, claims + 1
        elif event.src.startswith("control/") and subject != subjects.GENESIS:
            decisions += 1
            assert event.epoch == fence, f"{event.type} at {at} is of epoch {event.epoch}: {fence}"
    print(f"{decisions} decisions under {claims} claims, none of a superseded one")  # noqa: T201
    assert decisions


def print_times(seconds: dict[str, list[float]]) -> None:
    for how, all_ in seconds.items():
        if all_:
            told = f"median {median(all_):.2f} s, worst {max(all_):.2f} s"
            print(f"{len(all_)} takeovers after {how}: {told}")  # noqa: T201


# spec: L7
async def test_a_leader_that_ends_cleanly_is_replaced_at_once(pair: tuple[LiveFleet, str]) -> None:
    fleet, _ = pair
    old = await leader_of(fleet)
    (new,) = set(CONTROLS) - {old}
    began = time.monotonic()
    assert await fleet.programs[old].stop() == 0
    await leader_of(fleet, new)
    print(f"led {time.monotonic() - began:.2f} s after SIGTERM")  # noqa: T201
    log = (fleet.logs / f"{old}.log").read_text()
    assert "control.fenced" not in log
    status: dict[str, Any] | None = await fleet.ask("status", new)
    assert status is not None
    assert [row["control"] for row in status["controls"]] == [new]
