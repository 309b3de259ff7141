"""NATS killed again and again, its consumers deleted, its packets lost: every program finds back."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct

from schemas import subjects
from services.log import api
from services.log.connect import Connection
from tests.support.examples import rounds
from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.proxy import Proxy

ROUNDS = rounds("NATS_FLAPS", 4)
MUTE_SECONDS = float(rounds("NATS_MUTE_SECONDS", 10))
"""Longer than it takes to notice that a link is dead; two minutes in the nightly run."""


class _Names(Struct, frozen=True):
    consumers: tuple[str, ...] | None = ()


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[tuple[LiveFleet, Proxy]]:
    """A fleet whose programs reach NATS through the proxy alone."""
    async with LiveFleet(tmp_path) as made:
        proxy = Proxy(made.nats.port)
        await proxy.start()
        made.nats_url = proxy.url
        made.add_control()
        made.add_router()
        made.add_node("node-1")
        await made.until_up()
        await made.until_nodes("node-1")
        yield made, proxy
        await proxy.close()


# case: JS-01
async def test_every_program_applies_what_is_new_after_nats_was_gone_or_silent(
    behind: tuple[LiveFleet, Proxy], tiny_gguf: Path
) -> None:
    fleet, proxy = behind
    pids = {name: program.pid for name, program in fleet.programs.items()}
    await fresh(fleet, tiny_gguf, "m0")
    direct = Connection(fleet.nats.url, "test")
    await direct.start()
    for number in range(1, ROUNDS + 1):
        match number % 4:
            case 0:
                proxy.mute = True
                await asyncio.sleep(MUTE_SECONDS)
                proxy.mute = False
            case 2:
                await direct.wait_connected()
                await delete_consumers(direct)
            case _:
                await asyncio.to_thread(fleet.nats.kill)
                await asyncio.to_thread(fleet.nats.start)
        began = time.monotonic()
        await fresh(fleet, tiny_gguf, f"m{number}")
        print(f"{number}: all had it after {time.monotonic() - began:.1f} s")  # noqa: T201
    await direct.close()
    assert {name: program.pid for name, program in fleet.programs.items()} == pids
    assert all(program.running for program in fleet.programs.values())


async def fresh(fleet: LiveFleet, model: Path, name: str) -> None:
    """Control decides, the agent obeys, the router serves: a model that was not there before."""
    await fleet.until_up()
    await fleet.apply(catalog_of(tiny_entry(name, model, 1)), prune=await present(fleet))
    await fleet.until_ready(name, 1)
    await fleet.until_served(name)


async def present(fleet: LiveFleet) -> tuple[str, ...]:
    answer = await fleet.ask("models")
    return tuple(row["model"] for row in (answer or {"items": []})["items"])


async def delete_consumers(connection: Connection) -> None:
    for stream in (subjects.LOG, subjects.STATE):
        found = await api.call(connection, f"CONSUMER.NAMES.{stream}", None, _Names)
        for name in found.consumers or ():
            await api.call(connection, f"CONSUMER.DELETE.{stream}.{name}", None, dict[str, object])
