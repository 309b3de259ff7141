"""The agent as a process, with a real nats-server and the real llama.cpp engine."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest_asyncio
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import AssignedShard, Assignment, Gone, NodeInfo, ShardStatus
from services.agent.node import incarnation_of
from services.log.connect import Connection
from services.log.history import read_range
from services.log.snapshot import direct
from services.runtime import proc
from tests.builders import an_event
from tests.support.nats_server import NatsServer
from tests.support.node import NODE, AgentProcess, Orders
from tests.support.ports import free_port
from tests.support.programs import ROOT
from tests.support.shards import an_order, engines, kill_engines
from tests.support.waiting import eventually, until


@pytest_asyncio.fixture
async def orders(connection: Connection) -> AsyncIterator[Orders]:
    made = Orders(connection)
    await made.begin()
    yield made
    await made.end()


@pytest_asyncio.fixture
async def agent(tmp_path: Path, nats: NatsServer) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(tmp_path, nats.url)
    made.program.start()
    yield made
    made.program.kill()
    kill_engines(made.data)
    print(made.program.tail())  # noqa: T201 - shown when a test fails.


def an_assigned(source: Path, replica: str = "tiny-0-1") -> AssignedShard:
    order = an_order(str(source), free_port())
    return replace(order, replica=replica)


async def complete(order: AssignedShard) -> int:
    url = f"http://127.0.0.1:{order.launch.port}/v1/completions"
    body = {"model": "tiny", "prompt": "a", "max_tokens": 1}
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as answer:
        await answer.read()
        return answer.status


async def test_runs_what_it_is_assigned_and_says_so(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: A3 A5 L1 W3
    info = await orders.info()
    assert [engine.name for engine in info.engines] == ["llamacpp"]
    assert info.engines[0].version
    assert info.admin_address == agent.listen
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    shard = await orders.shard("ready")
    assert (shard.replica, shard.attempt, shard.run) == (order.replica, 1, 0)
    assert shard.port == order.launch.port
    assert shard.process is not None
    assert proc.is_alive(shard.process)
    assert await complete(order) == 200
    await until(lambda: orders.loads and order.replica in orders.loads[-1].engines)
    assert orders.loads[-1].engines[order.replica].running == 0.0
    held = orders.state.assignment(NODE)
    assert held is not None
    await until(lambda: orders.beats[-1].assignment == held.sequence)
    assert orders.beats[-1].log == orders.log_id
    assert (await agent.readiness())[0] == 200


async def test_every_report_names_its_cause(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: L1
    await orders.assign(an_assigned(tiny_gguf))
    await orders.shard("ready")
    payload = await orders.connection.request(
        "$JS.API.DIRECT.GET.FLOTILLA_LOG.flotilla.log.s.node.node-1.shard.0", b"", 5.0
    )
    assert b'"cause":"cause-1"' in payload.payload
    assert b'"type":"shard.ready"' in payload.payload


async def test_what_is_absent_stops_and_its_slot_is_used_again(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: A5 C5
    first, second = an_assigned(tiny_gguf), an_assigned(tiny_gguf, "tiny-1-1")
    await orders.assign(first, second)
    await orders.shard("ready")
    await orders.shard("ready", "tiny-1-1")
    slots = {held.document.replica: key for key, held in orders.state.shards.items()}
    await orders.assign(second)
    subject = f"flotilla.log.s.node.node-1.shard.{slots[first.replica][1]}"

    async def gone() -> Gone | None:
        held = (await orders.look()).gone.get(subject)
        return held.document if held else None

    assert await eventually(gone, "the slot is free") == Gone(id=first.replica)
    assert await complete(second) == 200
    third = an_assigned(tiny_gguf, "tiny-2-1")
    await orders.assign(second, third)
    await orders.shard("ready", "tiny-2-1")
    assert subject not in orders.state.gone
    assert len(engines(agent.data)) == 4  # Two engines, each with its shim.


async def test_engines_keep_their_pids_when_the_agent_is_killed(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: A4
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    before = await orders.shard("ready")
    agent.program.kill()
    assert await complete(order) == 200
    old = (await orders.info()).incarnation
    agent.program.start()

    async def described() -> NodeInfo | None:
        return info if (info := await orders.info()).incarnation != old else None

    async def reported() -> ShardStatus | None:
        return shard if (shard := await orders.shard("ready")).incarnation != old else None

    info = await eventually(described, "the new agent described the node")
    assert [session.process for session in info.sessions] == [before.process]
    shard = await eventually(reported, "the new agent reported")
    assert (shard.process, shard.run, shard.attempt) == (before.process, 0, 1)
    assert await complete(order) == 200


async def test_a_node_says_what_it_runs_before_it_says_what_it_is(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: R1
    await orders.assign(an_assigned(tiny_gguf))
    await orders.shard("ready")
    agent.program.kill()
    old = (await orders.info()).incarnation
    agent.program.start()

    async def described() -> bool:
        return (await orders.info()).incarnation != old

    await eventually(described, "the new agent described the node")
    told = [
        stored.subject
        async for batch in read_range(orders.connection, 1, None, [f"{subjects.STATE_ROOT}node.>"])
        for stored in batch
        if incarnation_of(stored) not in ("", old)
    ]
    assert subjects.node_shard(NODE, 0) in told[: told.index(subjects.node_info(NODE))]


async def test_what_should_no_longer_run_is_stopped_by_the_next_agent(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: A4
    await orders.assign(an_assigned(tiny_gguf))
    await orders.shard("ready")
    agent.program.kill()
    await orders.assign()
    agent.program.start()
    await until(lambda: engines(agent.data) == [])


async def test_keeps_and_restarts_its_engines_without_nats(
    orders: Orders, agent: AgentProcess, nats: NatsServer, tiny_gguf: Path
) -> None:  # spec: A5 T9
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    before = await orders.shard("ready")
    assert before.process is not None
    nats.kill()
    agent.program.kill()
    agent.program.start()
    await until(lambda: '"shard.adopted"' in agent.program.tail())
    os.kill(before.process.pid, signal.SIGKILL)
    await until(lambda: agent.program.tail().count('"phase":"ready"') >= 2)
    assert await complete(order) == 200
    nats.start()
    after = await orders.shard("ready", run=1)
    assert (after.attempt, after.failures) == (1, 1)


async def test_what_an_engine_that_failed_said_last_stands_outside_the_log(
    orders: Orders, agent: AgentProcess, connection: Connection, tmp_path: Path
) -> None:
    order = an_assigned(tmp_path / "missing.gguf")
    await orders.assign(order)
    await orders.shard("failed")
    said = await eventually(
        lambda: direct(connection, subjects.TAILS, subjects.tail(NODE, order.replica)),
        "the engine's last words are in their stream",
    )
    assert b"missing.gguf" in said.payload
    assert len(said.payload) <= 64 * 1024


async def test_acts_on_no_other_log_than_the_one_it_followed(
    orders: Orders, agent: AgentProcess, nats: NatsServer, tiny_gguf: Path
) -> None:  # spec: L5
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    await orders.shard("ready")
    await until(lambda: (agent.data / "agent" / "seen.json").exists())
    await orders.end()
    nats.kill()
    shutil.rmtree(nats.directory / "store")
    await until(lambda: not orders.connection.connected)
    nats.start()
    other = Orders(orders.connection, "f" * 32)
    await orders.connection.wait_connected()
    await other.begin()
    await other.assign()  # "Nothing should run here", says the wrong log.
    await until(lambda: other.beats and "another log" in other.beats[-1].damaged)
    status, reason = await agent.readiness()
    assert (status, "another log" in reason) == (503, True)
    assert await complete(order) == 200
    assert other.beats[-1].log == orders.log_id
    assert (await other.look()).infos == {}
    agent.program.kill()  # A new agent knows it too.
    agent.program.start()
    other.beats.clear()
    await until(lambda: other.beats and other.beats[-1].damaged)
    assert await complete(order) == 200
    await other.end()


async def test_obeys_nothing_that_a_newer_version_wrote(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: L5
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    await orders.shard("ready")
    newer = an_event(Assignment(node=NODE, shards=()), version=2, log=orders.log_id)
    await orders.connection.request(subjects.assignment(NODE), newer, 5.0)
    await until(lambda: '"assignment.unreadable"' in agent.program.tail())
    assert (await orders.shard("ready")).run == 0
    assert await complete(order) == 200


async def test_a_disk_that_refuses_makes_the_node_not_ready_and_ends_nothing(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: A4
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    await orders.shard("ready")
    in_its_way = agent.data / "agent" / f".seen.json.{agent.program.pid}.tmp"
    in_its_way.mkdir()

    async def refused() -> bool:
        await orders.assign(order)  # The log grows, and with it what is to be kept.
        return (await agent.readiness())[0] == 503

    async def taken() -> bool:
        return (await agent.readiness())[0] == 200

    await eventually(refused, "the node is not ready")
    assert "the disk refuses" in (await agent.readiness())[1]
    assert await complete(order) == 200
    in_its_way.rmdir()
    await eventually(taken, "the node is ready again")
    assert agent.program.running


async def test_a_name_that_another_machine_uses_is_refused(
    orders: Orders, agent: AgentProcess, nats: NatsServer, tmp_path: Path
) -> None:
    info = await orders.info()
    agent.program.kill()
    other = replace(info, machine_id="another")
    await orders.put_info(other)
    agent.program.start()
    await agent.until_exit()
    assert await agent.program.stop() == 4
    assert "name in use" in agent.program.tail()
    assert (await orders.info()).machine_id == "another"


async def test_a_successor_makes_the_older_agent_give_up(
    orders: Orders, agent: AgentProcess, tmp_path: Path, tiny_gguf: Path
) -> None:
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    shard = await orders.shard("ready")
    await orders.put_shard(replace(shard, incarnation="successor"))
    await orders.assign()
    await agent.until_exit()
    assert await agent.program.stop() == 4


async def test_what_it_had_reported_stopped_never_starts_even_with_its_folder_lost(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    await orders.shard("ready")
    drained = replace(order, goal="drain")
    await orders.assign(drained)
    await orders.shard("stopped")
    agent.program.kill()
    shutil.rmtree(agent.data / "agent" / "shards")
    agent.program.start()
    await orders.assign(order)
    held = (await orders.look()).assignment(NODE)
    assert held is not None
    orders.beats.clear()
    await until(lambda: orders.beats and orders.beats[-1].assignment == held.sequence)
    assert engines(agent.data) == []
    newer = replace(order, attempt=2)
    await orders.assign(newer)
    shard = await orders.shard("ready")
    assert shard.attempt == 2


async def test_engines_end_with_an_agent_that_says_they_cannot_survive(
    orders: Orders, tmp_path: Path, nats: NatsServer, tiny_gguf: Path
) -> None:  # spec: A4
    agent = AgentProcess(tmp_path, nats.url, FLOTILLA_AGENT_SURVIVE="off")
    agent.program.start()
    try:
        assert not (await orders.info()).engines_survive_agent
        await orders.assign(an_assigned(tiny_gguf))
        await orders.shard("ready")
        assert await agent.program.stop() == 0
        assert engines(agent.data) == []
    finally:
        agent.program.kill()
        kill_engines(agent.data)


async def test_stop_ends_engines_and_the_next_agent_starts_them(
    orders: Orders, agent: AgentProcess, tiny_gguf: Path
) -> None:  # spec: O7
    order = an_assigned(tiny_gguf)
    await orders.assign(order)
    await orders.shard("ready")
    command = [sys.executable, "-m", "services.agent.stop", str(agent.data)]
    refused = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True)
    assert refused.returncode == 1
    assert b"another agent runs" in refused.stderr
    await agent.program.stop()
    assert len(engines(agent.data)) == 2
    last = json.loads(agent.program.tail(1))
    assert (last["event"], last["engines_left_running"]) == ("agent.ends", 1)
    assert shlex.split(last["next"]) == command
    ended = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, b"engines stopped: 1\n")
    assert engines(agent.data) == []
    agent.program.start()
    shard = await orders.shard("ready", run=1)
    assert shard.failures == 0
    assert await complete(order) == 200


async def test_a_taken_admin_address_is_named(
    agent: AgentProcess, tmp_path: Path, nats: NatsServer
) -> None:
    async def listens() -> int | None:
        return (await agent.readiness())[0] or None

    await eventually(listens, "the agent listens")
    (tmp_path / "second").mkdir()
    second = AgentProcess(tmp_path / "second", nats.url, FLOTILLA_AGENT_LISTEN=agent.listen)
    second.program.start()
    await second.until_exit()
    assert await second.program.stop() == 1
    assert agent.listen in second.program.tail()
