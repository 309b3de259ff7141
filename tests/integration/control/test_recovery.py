"""Recoveries with more than one control service, or a control that was killed. No agents here: with
them, tests/e2e/test_recovery.py."""

import asyncio
import json
from typing import Any

from schemas import codec, subjects
from schemas.beats import AgentBeat
from schemas.ids import LogId, NodeId
from services.log.connect import Connection
from tests.builders import LOG_ID, a_genesis, an_event
from tests.support.control import Control, Controls
from tests.support.waiting import eventually

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
