"""No room in the log: commands are refused with that reason, control goes on, and it ends by itself."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec, subjects
from schemas.beats import NodeLoad
from schemas.ids import LogId, NodeId
from services.log import streams
from services.log.api import call
from services.log.connect import Connection
from tests.support.control import Control, Controls, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.refold import read_log
from tests.support.small_disk import SmallDisk, a_small_disk
from tests.support.waiting import until

ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf, patience: 5s}\n"
TWO = ONE + "  two: {engine: llamacpp, source: /models/two.gguf}\n"
MANY = ONE + "".join(
    f"  m{number}: {{engine: llamacpp, source: /models/m.gguf, replicas: 0}}\n"
    for number in range(300)
)
"""Larger than what a full disk has left at the end of a file."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with a_small_disk(tmp_path / "disk", 64) as made:
        yield made


@pytest.fixture
def nats(tmp_path: Path, disk: SmallDisk) -> Iterator[NatsServer]:
    """Its store is on the small disk."""
    server = NatsServer(tmp_path / "nats", store=disk.path / "store")
    server.start()
    yield server
    server.kill()


async def change_log(connection: Connection, **config: object) -> None:
    found = (await call(connection, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", found | config, streams.StreamInfo)


async def until_warned(control: Control, words: str) -> None:
    await control.until_status(lambda s: any(words in line for line in s["warnings"]), words)


async def until_not_warned(control: Control, words: str) -> None:
    await control.until_status(lambda s: not any(words in line for line in s["warnings"]), words)


# case: JS-03
async def test_a_full_log_refuses_commands_whole_and_nothing_needs_a_restart(
    nats: NatsServer, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = LogId((await control.until_leading())["log"])
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        head = await streams.head(connection)
        await change_log(connection, max_msgs=head, discard="new")
        status, refusal = await control.apply(TWO)
        assert (status, refusal["code"]) == (503, "log_refuses")
        assert "the event log is full" in refusal["why"]
        await until_warned(control, "the event log is full")
        load = codec.encode(NodeLoad(node=NodeId("node-1"), engines={}))
        for _ in range(2000):  # Telemetry takes no room in the log, full or not.
            await connection.publish(subjects.load(NodeId("node-1")), load)
        await connection.barrier()
        assert await streams.head(connection) == head
        answer = await control.ask("catalog")
        assert answer is not None
        assert list(answer["source"]["models"]) == ["one"]
        assert (await control.call("models"))[0] == 200
        await change_log(connection, max_msgs=-1)
        assert (await control.apply(TWO))[0] == 200
        await node.until_assigned(2)
        await until_not_warned(control, "the event log is full")
        events = await read_log(nats.url, await streams.head(connection))
    assert [s for _, s, _ in events].count(subjects.CATALOG) == 2


# case: JS-03
# spec: L6
async def test_a_full_disk_ends_no_control_and_is_said(
    nats: NatsServer, disk: SmallDisk, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    await control.until_leading()
    await control.apply(ONE)
    disk.fill()
    asked = asyncio.ensure_future(control.apply(MANY))
    await until_warned(control, "the log answers no write")
    assert control.program.running
    assert (await control.call("models"))[0] == 200
    disk.make_room()
    await asyncio.to_thread(nats.kill)
    await asyncio.to_thread(nats.start)
    await control.until_leading()
    await until_not_warned(control, "the log answers no write")
    await until(asked.done)
    asked.exception()  # Taken in the end, or given up by the caller.
    assert (await control.apply(TWO, pruneAll=True))[0] == 200
    answer = await control.ask("catalog")
    assert answer is not None
    assert sorted(answer["source"]["models"]) == ["one", "two"]
