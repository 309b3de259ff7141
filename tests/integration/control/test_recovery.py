"""Recoveries with more than one control service, or a control that was killed. No agents here: with
them, tests/e2e/test_recovery.py."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from schemas import codec, subjects
from schemas.beats import AgentBeat
from schemas.documents import ControlEpoch, Genesis
from schemas.frames import Accepted, Refusal
from schemas.ids import ControlId, EventId, LogId, NodeId
from schemas.recovery import Recover
from services.control import opening
from services.control.commanding.commands import Actor
from services.control.loop import Loop
from services.control.recovery import procedure
from services.log import streams
from services.log.append import claim
from services.log.connect import Connection
from services.log.guarded import Sealed
from services.log.snapshot import get_from_log
from tests.builders import LOG_ID, a_genesis, a_node, a_replica, a_shard, an_event
from tests.support.control import Control, Controls, a_live_node
from tests.support.doors import Doors
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually, until

ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf, replicas: 0}\n"


async def delete_streams(connection: Connection, *names: str) -> None:
    for stream in names or (subjects.LOG, subjects.STATE):
        await connection.request(f"$JS.API.STREAM.DELETE.{stream}", b"", 5.0)


async def chosen(control: Control, **request: object) -> dict[str, Any]:
    """The answer, once agents would have been heard."""

    async def answered() -> dict[str, Any] | None:
        _, answer = await control.call("journal/recovery", request)
        return None if answer.get("code") == "not_heard_yet" else answer

    return await eventually(answered, f"{control.name} answers")


async def damaged(control: Control) -> None:
    await control.until_status(lambda status: status["damage"], "says that the log is damaged")


async def recovered(control: Control) -> dict[str, Any]:
    return await control.until_status(
        lambda status: (
            status["catalogRevision"] == 1 and not status["damage"] and not status["halted"]
        ),
        "has recovered",
    )


# spec: L1 L7
async def test_a_standby_that_is_asked_leads_the_new_log_and_the_other_follows(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    second = controls.start("control-2")
    await first.apply(ONE)
    await second.until_status(lambda status: status["catalogRevision"] == 1, "follows")
    await delete_streams(connection)
    await damaged(first)
    await damaged(second)
    assert (await chosen(second, way="memory"))["kind"] == "Accepted"
    status = await recovered(second)
    assert status["leading"]
    assert (await recovered(first))["leader"] == "control-2"
    assert (await chosen(second, way="memory"))["code"] == "not_damaged"


async def test_where_what_was_chosen_is_lost_a_way_is_chosen_again(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    await first.apply(ONE)
    await delete_streams(connection)
    await damaged(first)
    assert (await chosen(first, way="memory"))["kind"] == "Accepted"
    first.program.kill()
    second = controls.start("control-2")
    status = await second.until_status(lambda status: status["leading"], "leads")
    assert any("an operator's choice" in line for line in status["halted"])
    _, refusal = await second.apply(ONE)
    assert refusal["code"] == "recovering"
    found = await second.ask("journal/recovery")
    assert found is not None
    assert [way["way"] for way in found["ways"] if not way["impossible"]] == ["agents"]
    assert (await chosen(second, way="agents", catalog=ONE))["kind"] == "Accepted"
    await recovered(second)


# spec: L1 L7
async def test_of_two_that_are_asked_at_once_one_begins_the_log_and_the_other_follows(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    second = controls.start("control-2")
    await first.apply(ONE)
    await recovered(second)
    for number in range(3):
        stranger = LogId(str(number) * 32)
        event = an_event(a_genesis(stranger), log=stranger)
        await connection.request(subjects.GENESIS, event, 5.0)
        await damaged(first)
        await damaged(second)
        answers = await asyncio.gather(chosen(first, way="memory"), chosen(second, way="memory"))
        taken = [answer for answer in answers if answer.get("kind") == "Accepted"]
        assert len(taken) == 1, json.dumps(answers)  # The other: refused, or sent to its leader.
        assert (await recovered(first))["log"] == (await recovered(second))["log"]
        await first.until_status(lambda status: status["leader"], "knows who leads")


async def test_state_that_is_gone_is_made_anew_from_a_log_that_tells_all_of_it(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    await first.apply(ONE)
    await delete_streams(connection, subjects.STATE)
    status = await first.until_status(
        lambda status: any("made anew" in line for line in status["warnings"]), "says so"
    )
    assert (status["damage"], status["leading"]) == (None, True)
    await delete_streams(connection, subjects.STATE)
    first.program.kill()
    first.program.start()
    status = await first.until_status(lambda status: status["leading"], "leads")
    assert status["catalogRevision"] == 1
    assert any("made anew" in line for line in status["warnings"])


async def test_state_that_is_gone_and_that_the_log_no_longer_tells_is_damage(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    await first.until_leading()
    await first.apply(ONE)
    info = await connection.request(f"$JS.API.STREAM.INFO.{subjects.LOG}", b"", 5.0)
    config = json.loads(info.payload)["config"]
    for most in (1, -1):
        body = json.dumps(config | {"max_msgs": most}).encode()
        await connection.request(f"$JS.API.STREAM.UPDATE.{subjects.LOG}", body, 5.0)
    await delete_streams(connection, subjects.STATE)
    await damaged(first)
    assert (await chosen(first, way="memory"))["kind"] == "Accepted"
    await recovered(first)


async def test_no_first_log_begins_where_somebody_follows_another(
    connection: Connection, controls: Controls
) -> None:
    beat = AgentBeat(
        node=NodeId("node-1"), incarnation="agent-1", log=LOG_ID, highest=9, assignment=0
    )

    async def follow() -> None:
        while True:
            await connection.publish(subjects.agent_beat(beat.node), codec.encode(beat))
            await asyncio.sleep(0.5)

    agent = asyncio.ensure_future(follow())
    try:
        fresh = controls.start("control-1")
        status = await fresh.until_status(lambda status: status["damage"], "is damaged")
        assert f"agent node-1 follows log {LOG_ID}" in status["damage"]["reason"]
        found = await connection.request(f"$JS.API.STREAM.INFO.{subjects.LOG}", b"", 5.0)
        assert b"stream not found" in found.payload
    finally:
        agent.cancel()


# spec: S1
async def test_with_users_an_administrator_makes_the_room_that_control_may_not_make(
    tmp_path: Path,
) -> None:
    doors = Doors(tmp_path / "doors", "control", "admin")
    nats = NatsServer(tmp_path / "nats", users=doors.text)
    nats.start()
    controls = Controls(nats, tmp_path)
    admin = Connection(doors.door(nats.url, "admin"), "admin")
    try:
        await admin.start()
        await admin.wait_connected()
        first = controls.start("control-1", doors.settings("control"))
        await first.until_leading()
        await first.apply(ONE)
        info = await admin.request(f"$JS.API.STREAM.INFO.{subjects.LOG}", b"", 5.0)
        config = json.loads(info.payload)["config"]
        await delete_streams(admin, subjects.LOG)
        body = json.dumps(config).encode()
        await admin.request(f"$JS.API.STREAM.CREATE.{subjects.LOG}", body, 5.0)
        await damaged(first)
        refusal = await chosen(first, way="memory")
        assert (refusal["code"], refusal["next"]) == ("denied", "nats stream rm FLOTILLA_LOG")
        assert "administrator" in refusal["message"]
        assert "permissions violation" in refusal["why"].lower()
        await delete_streams(admin, subjects.LOG)  # What that command asks for.
        assert (await chosen(first, way="memory"))["kind"] == "Accepted"
        await recovered(first)
    finally:
        controls.kill()
        await admin.close()
        nats.stop()


async def test_a_log_that_nobody_can_name_is_gone_on_from(
    connection: Connection, controls: Controls
) -> None:
    await streams.create(connection)
    await connection.request(subjects.GENESIS, b"garbage", 5.0)
    fresh = controls.start("control-1")
    await damaged(fresh)
    assert (await chosen(fresh, way="agents", catalog=ONE))["kind"] == "Accepted"
    await recovered(fresh)


OPERATOR = Actor("tests", "127.0.0.1", EventId("command-1"))
TINY = "models:\n  tiny:\n    engine: llamacpp\n    source: /t.gguf\n    cpu: {cores: 1, memory: 1GiB}\n"


async def begun(loop: Loop, request: Recover) -> Accepted | Refusal:
    async def answered() -> Accepted | Refusal | None:
        answer = await loop.recovering.beginning.begin(request, OPERATOR)
        assert isinstance(answer, Accepted | Refusal)
        early = isinstance(answer, Refusal) and answer.code == "not_heard_yet"
        return None if early else answer

    return await eventually(answered, "a way is chosen")


# spec: R1
async def test_an_agent_that_keeps_to_the_old_log_holds_nothing_up_and_is_taken_over_later(
    leading: tuple[Loop, asyncio.Task[None]],
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = leading
    lost = loop.state.log_id
    assert lost is not None
    async with a_live_node("node-1", connection, lost) as node:
        await until(loop.ears.agents)
        await delete_streams(connection)
        await until(lambda: loop.damage is not None)
        answer = await begun(loop, Recover(way="agents", catalog=TINY))
        assert isinstance(answer, Accepted), answer
        await until(lambda: bool(loop.recovering.moving()))
        moving = loop.recovering.moving()
        assert moving is not None
        assert moving.waits_for == (f"node-1: follows log {lost}; for 60 s at the most",)
        monkeypatch.setattr(procedure, "WAIT_SECONDS", 0.5)
        await until(lambda: bool(loop.state.catalog))
        reason = loop.state.catalog[()].document.reason
        assert reason.endswith(f"without node-1 (follows log {lost})")
        node.beating = False
        runs, new = a_replica(), loop.state.log_id
        assert new is not None
        for subject, document in (
            (subjects.node_shard(NodeId("node-1"), 0), a_shard(runs)),
            (subjects.node_info(NodeId("node-1")), a_node("node-1")),
        ):
            told = an_event(document, src="agent/node-1", log=new)
            await connection.request(subject, told, 5.0)
        await until(lambda: loop.state.replica(runs.id) is not None)
        assert loop.state.assignment(NodeId("node-1")) is None  # It was not heard yet.
        beat = AgentBeat(
            node=NodeId("node-1"), incarnation="agent-1", log=new, highest=9, assignment=0
        )
        await connection.publish(subjects.agent_beat(beat.node), codec.encode(beat))
        await until(lambda: loop.state.assignment(beat.node) is not None)
        held = loop.state.assignment(beat.node)
        assert held is not None
        assert [shard.replica for shard in held.document.shards] == [runs.id]


async def test_who_is_outrun_by_another_claim_says_so(
    leading: tuple[Loop, asyncio.Task[None]],
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = leading

    async def outrun(link: Connection, event: Sealed, expected: int) -> int | None:
        if event.subject == subjects.CONTROL_EPOCH:
            standing = await get_from_log(connection, subjects.GENESIS)
            assert standing is not None
            rival = ControlEpoch(holder=ControlId("control-9"), incarnation="other")
            genesis = codec.decode(codec.decode_event(standing.payload).data, Genesis)
            claimed = an_event(rival, id_="rival", log=genesis.log_id)
            await claim(connection, Sealed(event.subject, EventId("rival"), claimed), expected)
        return await claim(link, event, expected)

    await delete_streams(connection)
    await until(lambda: loop.damage is not None)
    monkeypatch.setattr(opening, "claim", outrun)
    answer = await begun(loop, Recover(way="memory"))
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.next) == ("led_by_another", "flotilla journal recover")
    monkeypatch.setattr(opening, "claim", claim)
    await until(lambda: loop.leading)  # The other never beats.
    assert isinstance(await begun(loop, Recover(way="agents", catalog=ONE)), Accepted)
    await until(lambda: bool(loop.state.catalog))
