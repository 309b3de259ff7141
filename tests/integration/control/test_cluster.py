"""Two control services on three nats-servers, while leaders of both kinds are killed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import subjects
from services.log.connect import Connection
from tests.support.control import Control, Controls
from tests.support.examples import rounds
from tests.support.nats_cluster import NatsCluster
from tests.support.refold import read_log
from tests.support.waiting import eventually

KILLS = rounds("NATS_CLUSTER_KILLS", 3)
CATALOG = "models:\n  m{}: {{engine: llamacpp, source: /models/m.gguf}}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    made = NatsCluster(tmp_path)
    made.start()
    yield made
    made.kill()


async def leading(pair: list[Control]) -> Control:
    async def asked() -> Control | None:
        for control in pair:
            if control.program.running:
                status = await control.ask("status")
                if status is not None and status["leading"]:
                    return control
        return None

    return await eventually(asked, "one of them leads", 90)


# spec: L6 L7
async def test_leaders_of_the_stream_and_of_control_die_one_after_another(
    cluster: NatsCluster, tmp_path: Path
) -> None:
    controls = Controls(cluster, tmp_path)
    connection = Connection(cluster.url, "test")
    await connection.start()
    try:
        await connection.wait_connected()
        pair = [controls.start("control-1"), controls.start("control-2")]
        await cluster.until_complete()
        for number in range(KILLS):
            leader = await leading(pair)
            await accepted(pair, number)
            await cluster.until_whole(connection, subjects.LOG)
            victim = await cluster.until_leader(connection, subjects.LOG)
            await asyncio.to_thread(victim.kill)
            leader.program.kill()
            await leading([control for control in pair if control is not leader])
            await asyncio.to_thread(victim.start)
            leader.program.start()
        status = await (await leading(pair)).until_leading()
        events = await read_log(cluster.url, status["asOfSeq"])
    finally:
        controls.kill()
        await connection.close()
    applied = [event.data for _, subject, event in events if subject == subjects.CATALOG]
    assert len(applied) == KILLS
    fence = 0
    for at, subject, event in events:
        if subject == subjects.CONTROL_EPOCH:
            fence = at
        elif event.epoch:
            assert event.epoch == fence, f"{event.type} at {at} is of a superseded leader"


async def accepted(pair: list[Control], number: int) -> None:
    """Apply a catalog of its own through whoever leads."""

    async def applied() -> bool:
        control = await leading(pair)
        try:
            status, _ = await control.apply(CATALOG.format(number), pruneAll=True)
        except OSError:
            return False
        return status == 200

    await eventually(applied, "an apply is accepted")
