"""Recoveries with more than one control service, or a control that was killed. No agents here: with
them, tests/e2e/test_recovery.py."""

from typing import Any

from schemas import subjects
from services.log.connect import Connection
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
