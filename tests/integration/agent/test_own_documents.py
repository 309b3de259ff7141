"""An agent and what stands under its node's name that it has not told, over a real nats-server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import Gone
from schemas.ids import LogId
from services.agent import loop
from services.agent.config import Config
from services.agent.loop import Agent
from services.agent.node import NameTaken
from services.agent.store import Store
from services.log.connect import Connection
from services.log.door import Door
from services.log.snapshot import get
from tests.builders import a_node, a_shard, an_event
from tests.support.nats_server import NatsServer
from tests.support.node import NODE, Orders
from tests.support.ports import free_port
from tests.support.waiting import eventually

OTHER = LogId("e" * 32)
AGENT = f"agent/{NODE}"
INFO = subjects.node_info(NODE)


@pytest_asyncio.fixture
async def orders(connection: Connection) -> AsyncIterator[Orders]:
    made = Orders(connection)
    await made.begin()
    yield made
    await made.end()


@pytest.fixture
def agent(nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Looks at its own documents several times a second."""
    monkeypatch.setattr(loop, "RESYNC_SECONDS", 0.2)
    address = f"127.0.0.1:{free_port()}"
    config = Config(
        node=NODE,
        nats=Door(url=nats.url),
        data=tmp_path,
        listen=address,
        admin_address=address,
        address="127.0.0.1",
        fabric_address="",
        ports=(17000, 17009),
        environments=(),
        fabric="",
        labels={},
        cores=1.0,
        memory_bytes=1 << 30,
        secrets_folder=tmp_path,
        engines_survive=True,
    )
    return Agent(config, Store(tmp_path), Random(1))


# spec: L5
async def test_whatever_comes_upon_its_subjects_the_agent_puts_right_by_itself(
    orders: Orders, agent: Agent
) -> None:
    running = asyncio.ensure_future(agent.run())
    try:
        info = await orders.info()
        mine = orders.log_id
        bad = {
            "3": b"junk",
            "4": an_event({}, src=AGENT, log=mine, version=99),
            "5": an_event(a_shard(), src="router/node-1", log=mine),
            "6": an_event(a_shard(), src=AGENT, log=OTHER),
            "7": an_event(Gone(id="x"), src=AGENT, log=OTHER),
            "8": an_event({}, src=AGENT, log=mine, version=99, optional=True),
            "none": b"{}",
        }
        for slot, payload in bad.items():
            await orders.connection.request(subjects.node_slot(NODE, slot), payload, 5.0)

        async def sound() -> bool:
            state = await orders.look()
            return not state.unreadable and not state.unknown

        await eventually(sound, "every slot is clear")
        for payload in (
            b"junk",
            an_event({}, src=AGENT, log=mine, version=99),
            an_event(a_node(), src="router/node-1", log=mine),
            an_event(Gone(id=NODE), log=mine),
        ):
            await orders.connection.request(INFO, payload, 5.0)
            await eventually(sound, "the node is described anew")
            assert await orders.info() == info
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_name_by_which_a_newer_agent_of_another_machine_lives_is_not_taken(
    orders: Orders, agent: Agent
) -> None:
    theirs = replace(a_node(), machine_id="another")
    payload = an_event(theirs, src=AGENT, log=orders.log_id, version=99)
    await orders.connection.request(INFO, payload, 5.0)
    with pytest.RaisesGroup(NameTaken, flatten_subgroups=True):
        async with asyncio.timeout(30):
            await agent.run()
    stored = await get(orders.connection, INFO)
    assert stored is not None
    assert stored.payload == payload
