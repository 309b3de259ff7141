"""What control hears of others, over a real nats-server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from schemas import codec, subjects
from schemas.beats import AgentBeat, ControlBeat, RouterBeat
from schemas.ids import ControlId, NodeId, RouterId
from services.control.ears import Ears, answers
from services.control.followers import Followers
from services.log.connect import Connection
from tests.builders import LOG_ID, Script, a_node
from tests.support.waiting import eventually

NODE, ROUTER = a_node().node, RouterId("router-1")


@asynccontextmanager
async def ears_on(connection: Connection) -> AsyncGenerator[Ears]:
    """They hear until the end of the block."""
    state = Script(a_node()).state
    ears = Ears(connection, lambda: state, Followers(), lambda _: None)
    async with asyncio.TaskGroup() as group:
        hearing = group.create_task(ears.run())
        yield ears
        hearing.cancel()


def a_router_beat(incarnation: str, applied: int, damaged: str = "") -> RouterBeat:
    return RouterBeat(
        router=ROUTER,
        incarnation=incarnation,
        log=LOG_ID,
        highest=applied,
        applied=applied,
        damaged=damaged,
    )


# spec: O1
async def test_hears_why_an_agent_acts_on_nothing(connection: Connection) -> None:
    beat = AgentBeat(
        node=NODE, incarnation="agent-1", log=LOG_ID, highest=1, assignment=0, damaged="another log"
    )
    async with ears_on(connection) as ears:

        async def heard() -> bool:
            await connection.publish(subjects.agent_beat(NODE), codec.encode(beat))
            return ears.damaged_agents() == {NODE: "another log"}

        await eventually(heard, "the beat is heard")


async def test_believes_nobody_who_speaks_for_another(connection: Connection) -> None:
    """NATS pins the subject; what a beat says in another's name is nothing."""
    other = NodeId("node-2")
    ghost = AgentBeat(node=other, incarnation="agent-1", log=None, highest=0, assignment=0)
    named = AgentBeat(node=NODE, incarnation="agent-1", log=LOG_ID, highest=1, assignment=0)
    router = a_router_beat("one", 42)
    control = ControlBeat(
        control=ControlId("c"), incarnation="1", epoch=1, log=LOG_ID, head=9, routing=9
    )
    false = (
        (subjects.agent_beat(NODE), ghost),
        (subjects.router_beat(RouterId("router-2")), router),
        (subjects.control_beat(ControlId("d")), control),
        (subjects.agent_beat(NODE), "nonsense"),
    )
    async with ears_on(connection) as ears:
        await eventually(lambda: _heard(connection, ears, named), "a true beat is heard")
        for subject, said in false * 2:
            await connection.publish(subject, codec.encode(said))

        async def dropped() -> bool:
            return ears.spoken.dropped == 2 * len(false)

        await eventually(dropped, "all that is false is dropped")
        assert [beat.node for beat in ears.agents()] == [NODE]
        assert [report.who for report in ears.reports()] == [f"agent {NODE}"]
        assert (ears.routers, ears.controls) == ({}, {})
        assert ears.hearing.measure(monotonic()).routers == {}


async def _heard(connection: Connection, ears: Ears, beat: AgentBeat) -> bool:
    await connection.publish(subjects.agent_beat(beat.node), codec.encode(beat))
    return bool(ears.agents())


# spec: R7
async def test_hears_two_routers_of_one_name(connection: Connection) -> None:
    beats = (a_router_beat("fast", 42), a_router_beat("slow", 7, "another log"))
    async with ears_on(connection) as ears:

        async def heard() -> bool:
            for beat in beats:
                await connection.publish(subjects.router_beat(ROUTER), codec.encode(beat))
            return ears.hearing.measure(monotonic()).routers == {ROUTER: 7}

        await eventually(heard, "the slower one counts")
        told = {beat.incarnation: beat.damaged for beat, _ in ears.routers.values()}
        assert told == {"fast": "", "slow": "another log"}


# spec: R4
async def test_the_silence_of_a_node_begins_when_it_joins(connection: Connection) -> None:
    async with ears_on(connection) as ears:

        async def is_silent() -> bool:
            return ears.hearing.measure(monotonic()).of(NODE) > 0.3

        await eventually(is_silent, "it is silent since hearing began")
        ears.folded(subjects.node_info(NODE))
        assert ears.hearing.measure(monotonic()).of(NODE) < 0.3


# spec: C1
@pytest.mark.parametrize(
    "address",
    [
        "localhost:70000",
        "localhost:99999999999999999999",
        "localhost:-1",
        "localhost:",
        "localhost",
        "",
        "a\r\nX-Header: b:80",
        "127.0.0.1 :80",
        f"{'a' * 300}.test:80",
        f"{'a' * 64}.test:80",
        "[::1:80",
        "h\N{LATIN SMALL LETTER O WITH DIAERESIS}st:80",
        "127.0.0.1:\N{ARABIC-INDIC DIGIT EIGHT}0",
    ],
)
async def test_an_address_that_is_none_answers_nothing(address: str) -> None:
    assert not await answers(address)
