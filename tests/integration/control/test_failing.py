"""What fails around a control service ends neither it nor anything that runs."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from schemas import codec, subjects
from schemas.api import ApplyCatalog
from schemas.beats import AgentBeat, RouterBeat
from schemas.frames import Frame
from schemas.ids import ControlId, EventId, LogId, NodeId, RouterId
from services.control.commanding.commands import Actor, plan_apply
from services.control.commanding.moment import Moment, Planned
from services.control.damage import SeenFile
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.leader import Leadership
from services.control.loop import Loop
from services.control.requests import MOST_WAITING, OutcomeUnknown, TooMany
from services.fleet.state import FleetState
from services.log import streams
from services.log.api import call
from services.log.connect import Connection
from services.log.snapshot import get_from_log
from tests.support.control import Control, Controls, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy
from tests.support.refold import read_log
from tests.support.waiting import eventually, until

ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf, patience: 5s}\n"


async def change_log(connection: Connection, **config: object) -> None:
    found = (await call(connection, "STREAM.INFO.FLOTILLA_LOG", None, streams.StreamInfo)).config
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", found | config, streams.StreamInfo)


async def until_warned(control: Control, words: str) -> None:
    await control.until_status(lambda s: any(words in line for line in s["warnings"]), words)


async def until_not_warned(control: Control, words: str) -> None:
    await control.until_status(lambda s: not any(words in line for line in s["warnings"]), words)


# spec: L3
async def test_a_frozen_log_makes_no_node_unreachable(
    nats: NatsServer, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = LogId((await control.until_leading())["log"])
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        os.kill(nats.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(8)  # Beyond the silence that makes a node unreachable.
        finally:
            os.kill(nats.pid, signal.SIGCONT)
        began = time.monotonic()
        status = await control.until_status(
            lambda s: s["leading"] and len(s["warnings"]) == 1, "goes on with the log"
        )
        while time.monotonic() - began < 3:  # What waited in its hands would have landed by now.
            status = await control.until_status(lambda _: True, "answers")
            assert status["nodes"] == {"alive": 1}
        events = await read_log(nats.url, status["asOfSeq"])
        assert [e.type for _, s, e in events if s == subjects.node_verdict(node.name)] == []


async def test_leads_again_after_the_last_happening_aged_out(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    await control.until_leading()
    await control.apply(ONE)
    await control.until_status(lambda s: s["models"] == {"pending": 1}, "has decided")
    assert (await control.apply("nonsense"))[0] == 422
    control.program.kill()
    record = await get_from_log(connection, subjects.command("apply"))
    assert record is not None
    assert record.sequence == await streams.head(connection)
    await change_log(connection, max_age=100_000_000, duplicate_window=100_000_000)

    async def emptied() -> bool:
        return await get_from_log(connection, subjects.command("apply")) is None

    await eventually(emptied, "the log is empty")
    control.program.start()
    await control.until_leading()
    answer = await control.ask("catalog")
    assert answer is not None
    assert list(answer["source"]["models"]) == ["one"]


async def test_a_claim_that_the_server_refuses_is_told_and_tried_again(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    await control.until_leading()
    control.program.kill()
    full = await streams.head(connection)
    await change_log(connection, max_msgs=full, discard="new")
    control.program.start()
    await until_warned(control, "the log refused a write")
    assert (await control.call("models"))[0] == 200
    status, refusal = await control.apply(ONE)
    assert (status, refusal["code"]) == (503, "not_leading")
    await change_log(connection, max_msgs=-1)
    await control.until_leading()
    await until_not_warned(control, "the log refused a write")


async def test_a_command_that_the_server_refuses_is_told_as_that(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    await control.until_leading()
    await change_log(connection, max_msgs=await streams.head(connection), discard="new")
    status, refusal = await control.apply(ONE)
    assert (status, refusal["code"]) == (503, "log_refuses")
    await change_log(connection, max_msgs=-1)
    assert (await control.apply(ONE))[0] == 200


async def test_a_disk_that_refuses_is_told_and_ends_nothing(controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    seen = control.data / "control" / "seen.json"
    await until(seen.is_file)
    seen.unlink()
    seen.mkdir()
    await control.apply(ONE)
    await until_warned(control, "the disk does not hold")
    assert (await control.ask("status") or {})["leading"]
    seen.rmdir()
    await until_not_warned(control, "the disk does not hold")
    assert seen.is_file()


def a_record(moment: Moment) -> Planned:
    """A real command: one that is refused, and recorded."""
    actor = Actor("tests", "127.0.0.1", EventId("command-1"))
    return plan_apply(ApplyCatalog(source="nonsense"), actor)(moment)


def nothing(_: Moment) -> Planned:
    return Planned((), lambda sequence: Frame(as_of_seq=sequence))


async def test_a_command_whose_ack_is_lost_at_the_end_is_not_told_as_refused(
    leading: tuple[Loop, asyncio.Task[None]], proxy: Proxy
) -> None:
    loop, task = leading
    proxy.drop = lambda frame: b'"batch"' in frame.body
    asked = asyncio.ensure_future(loop.perform(a_record))
    await until(lambda: proxy.dropped)
    task.cancel()
    await asyncio.wait([asked])
    assert isinstance(asked.exception(), OutcomeUnknown)


async def test_commands_above_a_number_are_not_taken(
    leading: tuple[Loop, asyncio.Task[None]],
) -> None:
    loop, _ = leading
    asked = [loop.perform(nothing) for _ in range(MOST_WAITING + 3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers[-3:]] == [TooMany] * 3
    assert all(isinstance(answer, Frame) for answer in answers[:-3])


async def test_whoever_beats_takes_no_more_than_bounded_room(
    leading: tuple[Loop, asyncio.Task[None]],
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ears = leading[0].ears
    monkeypatch.setattr("services.control.ears.MOST_HEARD", 3)
    for number in range(6):
        router = RouterId(f"router-{number}")
        beat = RouterBeat(router=router, incarnation="1", log=None, highest=0, applied=0)
        await connection.publish(subjects.router_beat(router), codec.encode(beat))
        agent = AgentBeat(
            node=NodeId(f"n{number}"), incarnation="1", log=None, highest=0, assignment=0
        )
        await connection.publish(subjects.agent_beat(agent.node), codec.encode(agent))
    await until(lambda: len(ears.reports()) == 6)
    assert sorted(name for name, _ in ears.routers) == ["router-0", "router-1", "router-2"]
    monkeypatch.setattr("services.control.ears.REPORT_SECONDS", 0.0)
    await until(lambda: not ears.routers)


async def test_a_pass_that_is_due_and_cannot_be_made_keeps_no_processor_busy(
    leading: tuple[Loop, asyncio.Task[None]],
    proxy: Proxy,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = leading
    turns = 0
    lived = loop.recovering.beginning.lived

    def count(state: FleetState) -> None:
        nonlocal turns
        turns += 1
        lived(state)

    monkeypatch.setattr(loop.recovering.beginning, "lived", count)
    log = loop.state.log_id
    assert log is not None
    async with a_live_node("node-1", connection, log) as node:
        await until(loop.ears.agents)
        node.beating = False  # The next pass is wanted for when it has been silent for too long.
        passes = loop.writing.tally.turns
        await until(lambda: loop.writing.tally.turns > passes + 1)
        proxy.shut = True
        await proxy.cut()
        await until(lambda: not loop.connection.connected)
        turns, wanted = 0, loop.now() + UNREACHABLE_SECONDS
        await until(lambda: loop.now() > wanted + 1)
        assert turns < 100
    leadership = Leadership(ControlId("control-2"), "start-2", "127.0.0.1:7401")
    other = Loop(connection, leadership, SeenFile(tmp_path / "seen-2.json"), 1.0)
    task = asyncio.ensure_future(other.run())
    await until(lambda: other.leading)
    proxy.shut = False
    await until(lambda: loop.connection.connected and not loop.leading)
    turns, wanted = 0, loop.now() + UNREACHABLE_SECONDS
    await until(lambda: loop.now() > wanted + 1)
    assert turns < 100
    task.cancel()
    await asyncio.wait([task])
