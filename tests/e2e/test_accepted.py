"""A command that was answered "accepted" takes effect, whatever dies right after the answer."""

import os
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from schemas import subjects
from schemas.ids import EventId
from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.refold import read_log
from tests.support.waiting import eventually

ROUNDS = int(os.environ.get("ACCEPTED", "4"))
SEED = int(os.environ.get("SEED", "3"))
CONTROLS = ("control-1", "control-2")
NATS = "nats"


async def accepted(fleet: LiveFleet, catalog: str) -> tuple[int, EventId]:
    """Revision and command id, from whichever control takes it."""

    async def taken() -> tuple[int, EventId] | None:
        for name in CONTROLS:
            try:
                status, answer = await fleet.call("catalog", {"source": catalog}, name)
            except (aiohttp.ClientError, OSError, TimeoutError):
                continue
            if status == 200:
                return answer["revision"], EventId(answer["command"])
        return None

    return await eventually(taken, "a control takes the catalog")


async def leaders_status(fleet: LiveFleet) -> dict[str, Any] | None:
    for name in CONTROLS:
        status = await fleet.ask("status", name)
        if status is not None and status["leading"]:
            return status
    return None


def kill_and_start_all(fleet: LiveFleet, source: Random) -> list[str]:
    """kill -9 of every process, and their starts, each in an order of its own."""
    killed = [NATS, *fleet.programs]
    source.shuffle(killed)
    for name in killed:
        fleet.nats.kill() if name == NATS else fleet.programs[name].kill()
    started = list(killed)
    source.shuffle(started)
    for name in started:
        fleet.nats.start() if name == NATS else fleet.programs[name].start()
    return killed


# spec: L6
async def test_what_was_accepted_is_in_force_after_every_process_was_killed(
    tmp_path: Path, tiny_gguf: Path
) -> None:
    source = Random(SEED)
    commands: list[EventId] = []
    print(f"seed {SEED}")  # noqa: T201
    async with LiveFleet(tmp_path) as fleet:
        for name in CONTROLS:
            fleet.add_control(name)
        fleet.add_router()
        fleet.add_node()
        for round_ in range(ROUNDS):
            alias = f"round-{round_}"
            entry = tiny_entry("tiny", tiny_gguf, replicas=1, aliases=f"[{alias}]")
            revision, command = await accepted(fleet, catalog_of(entry))
            order = kill_and_start_all(fleet, source)
            commands.append(command)

            async def in_force(least: int = revision) -> bool:
                status = await leaders_status(fleet)
                return status is not None and status["catalogRevision"] >= least

            await eventually(in_force, f"revision {revision} is current after kills: {order}")
            await fleet.until_served(alias)  # The name is new in this very catalog.
        final = await eventually(lambda: leaders_status(fleet), "a control leads at the end")
        recorded = [
            event.corr
            for _, subject, event in await read_log(fleet.nats.url, final["asOfSeq"])
            if subject == subjects.command("apply") and event.type == "command.accepted"
        ]
    assert [command for command in commands if recorded.count(command) != 1] == []
