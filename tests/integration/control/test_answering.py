"""No command and no reader ends control, or keeps it from its turns."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from schemas import codec, frames, subjects
from schemas.documents import CommandRecord
from schemas.ids import EventId
from services.control import passes, requests
from services.control.answering import pages, rpc
from services.control.answering.api import Api
from services.control.answering.orders import carry_out
from services.control.answering.rpc import CommandsByNats, encoded
from services.control.answering.tokens import PRINTABLE, Tokens
from services.control.commanding.commands import Actor
from services.control.commanding.moment import Moment, Planned
from services.control.deciding import pace
from services.control.deciding.drafts import Draft
from services.control.loop import Loop
from services.control.requests import Failed
from services.fleet.catalog import Catalog, CatalogFaults, from_yaml
from services.log import append as log_append
from services.log.connect import Connection
from services.log.message import Unavailable
from tests.support.control import Controls
from tests.support.proxy import Proxy
from tests.support.waiting import eventually, until

Leading = tuple[Loop, asyncio.Task[None]]
ACTOR = Actor("tests", "127.0.0.1", EventId("command-1"))
OFF = subjects.control_rpc("brake-off")


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def raises(_: Moment) -> Planned:
    raise RecursionError("too deep")


def too_long(_: Moment) -> Planned:
    document = CommandRecord(
        verb="x",
        actor="a",
        source="",
        reason="r" * (1 << 20),
        target="",
        outcome="refused",
        detail="",
    )
    draft = Draft(
        subject=subjects.command("x"), type="command.refused", document=document, id=EventId("x")
    )
    return Planned([draft], lambda sequence: frames.Frame(as_of_seq=sequence))


async def test_a_pass_that_fails_ends_nobody_is_said_and_is_made_again(
    leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, task = leading
    monkeypatch.setattr(passes, "decide", raises)
    await until(lambda: loop.deciding_fails)
    assert loop.leading
    assert not task.done()
    assert "TypeError" in loop.deciding_fails  # It is given more than a moment.
    monkeypatch.undo()
    await until(lambda: not loop.deciding_fails)


async def test_a_command_that_fails_ends_itself_alone(leading: Leading) -> None:
    loop, task = leading
    with pytest.raises(Failed, match="too deep"):
        await loop.perform(raises)
    with pytest.raises(Failed, match="bytes"):
        await loop.perform(too_long)
    taken = await loop.perform(lambda _: Planned((), lambda at: frames.Frame(as_of_seq=at)))
    assert taken.as_of_seq
    assert not task.done()


async def test_a_catalog_is_read_beside_the_event_loop(
    leading: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def reading(text: str, file: str) -> Catalog | CatalogFaults:
        threads.append(threading.current_thread())
        return from_yaml(text, file)

    monkeypatch.setattr("services.control.commanding.commands.from_yaml", reading)
    answer = await carry_out(leading[0], "apply", b'{"source": "nonsense"}', ACTOR)
    assert isinstance(answer, frames.Refusal)
    assert answer.code == "bad_catalog"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


# spec: O1
async def test_who_does_not_know_what_became_of_a_command_is_told_where_to_look(
    leading: Leading, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(log_append, "ACK_SECONDS", 0.2)
    proxy.drop = lambda frame: b'"batch"' in frame.body or b"Nats-Subject" in frame.body
    answer = await carry_out(leading[0], "brake-off", b'{"state": "off"}', ACTOR)
    proxy.drop = lambda _: False
    assert isinstance(answer, frames.Refusal)
    assert (answer.code, answer.next) == (
        "outcome_unknown",
        "flotilla events --for command/command-1",
    )


async def test_what_a_command_over_nats_raises_is_answered(
    leading: Leading, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(loop: Loop, name: str, body: bytes, actor: Actor) -> frames.Frame:
        raise KeyError(name)

    answering = asyncio.ensure_future(CommandsByNats(leading[0]).run())
    monkeypatch.setattr(rpc, "carry_out", broken)

    async def asked() -> bytes | None:
        try:
            return (await connection.request(OFF, b"{}", 1.0)).payload
        except Unavailable:
            return None

    for _ in range(2):
        answer = codec.decode(await eventually(asked, "an answer"), frames.Refusal)
        assert answer.code == "failed"
    assert not answering.done()
    await end(answering)


async def test_commands_over_nats_above_a_number_are_not_heard(
    leading: Leading, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []

    async def waits(loop: Loop, name: str, body: bytes, actor: Actor) -> frames.Frame:
        begun.append(body)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(rpc, "carry_out", waits)
    monkeypatch.setattr(rpc, "MOST_AT_ONCE", 3)
    answering = asyncio.ensure_future(CommandsByNats(leading[0]).run())

    async def heard() -> bool:
        await connection.publish(OFF, b"{}", reply="answers.here")
        return len(begun) == 3

    await eventually(heard, "three are begun")
    for _ in range(10):
        await connection.publish(OFF, b"{}", reply="answers.here")
    await connection.barrier()
    await leading[0].connection.barrier()
    assert len(begun) == 3
    await end(answering)


def test_an_answer_that_is_more_than_one_message_is_told_in_short() -> None:
    faults = tuple(frames.Fault(message="x" * 10_000) for _ in range(200))
    whole = frames.Refusal(as_of_seq=7, code="bad_catalog", message="200 faults", faults=faults)
    told = codec.decode(encoded(whole), frames.Refusal)
    assert (told.code, told.message, told.faults) == ("bad_catalog", "200 faults", ())
    assert "ask over HTTP" in told.why


async def test_pages_of_a_large_fleet_are_computed_one_at_a_time_beside_the_event_loop(
    leading: Leading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = leading
    threads: list[threading.Thread] = []

    def page(seen: pages.Seen, path: Mapping[str, str]) -> frames.Frame:
        threads.append(threading.current_thread())
        return frames.Frame(as_of_seq=seen.state.sequence)

    monkeypatch.setitem(pages.PAGES, "status", page)
    monkeypatch.setattr(pace, "SMALL_FLEET_NODES", -1)
    app = Api(loop, Tokens(tmp_path / "tokens.toml")).app()
    token = (tmp_path / PRINTABLE).read_text().strip()
    async with TestClient(TestServer(app)) as client:

        async def ask() -> int:
            headers = {"Authorization": f"Bearer {token}"}
            async with client.get("/api/v1/status", headers=headers) as answer:
                return answer.status

        async with loop.state_rests:
            asked = [asyncio.ensure_future(ask()) for _ in range(3)]
            await asyncio.wait(asked, timeout=0.5)
            assert not threads
            changes = asyncio.ensure_future(loop.state_rests.acquire())
            await asyncio.sleep(0)
        await until(changes.done)
        assert len(threads) <= 1  # Readers that wait do not stand before who changes the state.
        loop.state_rests.release()
        assert await asyncio.gather(*asked) == [200] * 3
    assert len(threads) == 3
    assert threading.main_thread() not in threads


async def test_a_recovery_may_bring_as_large_a_catalog_as_an_apply(controls: Controls) -> None:
    control = controls.start()
    await control.until_leading()
    body = {"way": "log", "catalog": "#" * (2 << 20)}
    status, answer = await control.call("journal/recovery", body)
    assert (status, answer["code"]) == (409, "not_damaged")
