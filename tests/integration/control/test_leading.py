"""A control that holds the lead in this process, behind a proxy that loses what a test names."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from schemas import codec, subjects
from schemas.api import ApplyCatalog
from schemas.beats import ControlBeat
from schemas.ids import ControlId, EventId, LogId
from services.control import loop as loop_module
from services.control import writing
from services.control.commanding.commands import Actor, plan_apply
from services.control.commanding.moment import Moment, Planned
from services.control.damage import SeenFile
from services.control.leader import Leadership
from services.control.loop import Loop
from services.control.requests import NotLeading, OutcomeUnknown
from services.log import append as log_append
from services.log import streams
from services.log.connect import Connection
from services.log.message import Message
from tests.support.control import a_live_node
from tests.support.nats_server import NatsServer
from tests.support.proxy import Frame, Proxy
from tests.support.refold import read_log
from tests.support.waiting import until

ONE = "models:\n  one: {engine: llamacpp, source: /models/one.gguf}\n"
Leading = tuple[Loop, asyncio.Task[None]]


def an_apply(moment: Moment) -> Planned:
    actor = Actor("tests", "127.0.0.1", EventId("command-1"))
    return plan_apply(ApplyCatalog(source=ONE), actor)(moment)


def is_batch_answer(frame: Frame) -> bool:
    return b'"batch"' in frame.body


def is_read_of_log(frame: Frame) -> bool:
    """A message of LOG to its reader, or the answer to a get of one."""
    return frame.reply.startswith("$JS.ACK.FLOTILLA_LOG.") or b"Nats-Subject" in frame.body


@pytest_asyncio.fixture
async def standby(connection: Connection, leading: Leading, tmp_path: Path) -> AsyncIterator[Loop]:
    """Another control, with a good link of its own."""
    leadership = Leadership(ControlId("control-2"), "start-2", "127.0.0.1:7401")
    loop = Loop(connection, leadership, SeenFile(tmp_path / "seen-2.json"), 1.0)
    task = asyncio.ensure_future(loop.run())
    await until(lambda: loop.state.sequence >= leading[0].state.sequence)
    yield loop
    task.cancel()
    await asyncio.wait([task])


# spec: L8
async def test_a_report_that_comes_before_the_ack_of_what_it_answers_changes_nothing(
    leading: Leading,
    proxy: Proxy,
    connection: Connection,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = leading
    monkeypatch.setattr(log_append, "ACK_SECONDS", 1.0)
    log = loop.state.log_id
    assert log is not None
    async with a_live_node("node-1", connection, LogId(log)) as node:
        await until(lambda: loop.state.assignments)
        answers = itertools.count()
        proxy.drop = lambda frame: is_batch_answer(frame) and next(answers) > 0
        await loop.perform(an_apply)  # Its own answer comes, that of the placement does not.
        await node.until_assigned(1)
        await node.report("ready")
        await until(lambda: loop.state.shards)
        assert proxy.dropped
        assert not loop.state.endpoints
        proxy.drop = lambda _: False
        await until(lambda: loop.state.endpoints)
        events = await read_log(nats.url, await streams.head(connection))
        types = [event.type for _, _, event in events]
        for once in ("replica.placed", "placement.placed", "endpoints.published"):
            assert types.count(once) == 1


# spec: L8
async def test_what_never_reports_is_asked_for_once(
    leading: Leading, connection: Connection, nats: NatsServer
) -> None:
    loop, _ = leading
    log = loop.state.log_id
    assert log is not None
    async with a_live_node("node-1", connection, LogId(log)) as node:
        await loop.perform(an_apply)
        await node.until_assigned(1)
        turns = loop.writing.tally.turns
        before = await streams.head(connection)
        await until(lambda: loop.writing.tally.turns > turns + 3)
        assert await streams.head(connection) == before


# spec: L6
async def test_a_log_that_does_not_come_is_opened_anew_and_the_lead_is_kept(
    leading: Leading, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = leading
    monkeypatch.setattr(loop_module, "FOLD_SECONDS", 0.3)
    fence = loop.state.fence
    proxy.drop = is_read_of_log
    with pytest.raises(OutcomeUnknown):
        await loop.perform(an_apply)
    await until(lambda: not loop.leading)
    proxy.drop = lambda _: False
    await until(lambda: loop.leading)
    assert loop.state.fence > fence
    assert loop.current().revision == 1


# spec: L7
async def test_a_log_that_is_ahead_and_brings_nothing_is_opened_anew(
    leading: Leading, proxy: Proxy, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = leading
    log = loop.state.log_id
    assert log is not None
    monkeypatch.setattr(loop_module, "LOOK_SECONDS", 0.1)
    proxy.drop = lambda frame: frame.reply.startswith("$JS.ACK.FLOTILLA_LOG.")
    async with a_live_node("node-1", connection, LogId(log)):
        await until(lambda: not loop.leading)
        assert not loop.state.infos
        proxy.drop = lambda _: False
        await until(lambda: loop.leading and loop.state.infos)


# spec: L7
async def test_a_leader_that_cannot_write_lets_another_lead(
    leading: Leading,
    standby: Loop,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _ = leading
    monkeypatch.setattr(writing, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(log_append, "ACK_SECONDS", 1.0)
    proxy.swallow = lambda frame: b"Nats-Batch-Id" in frame.body
    asked = asyncio.ensure_future(loop.perform(an_apply))
    await until(lambda: standby.leading)
    proxy.swallow = lambda _: False
    with pytest.raises(NotLeading):
        await asked
    await until(lambda: not loop.leading)
    assert standby.leading
    assert standby.current().revision == 0  # The command was not taken, as it was told.


# spec: L7
async def test_the_last_beat_of_a_leader_that_ends_says_that_it_resigns(
    leading: Leading, connection: Connection
) -> None:
    loop, task = leading
    beats: list[ControlBeat] = []

    def heard(message: Message) -> None:
        beats.append(codec.decode(message.payload, ControlBeat))

    await connection.subscribe(subjects.ALL_CONTROL_BEATS, heard)
    await until(lambda: beats and beats[-1].leading)
    fence = loop.state.fence
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: beats[-1].resigned)
    assert (beats[-1].leading, beats[-1].epoch) == (False, fence)
