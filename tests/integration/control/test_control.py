"""One control service: it decides from the log alone, and goes on after every kill."""

import time

import msgspec
import pytest

from schemas import subjects
from schemas.ids import EventId, LogId
from services.control.ears import answers
from services.fleet.state import FleetState
from services.log import streams
from services.log.connect import Connection
from services.log.guarded import Sealed, Written, write
from tests.builders import a_genesis, an_event
from tests.support.control import Control, Controls, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port
from tests.support.refold import dump_of, raw_log, read_log
from tests.support.waiting import eventually

ONE = (
    "models:\n  one: {engine: llamacpp, source: /models/one.gguf, patience: 5s, drain_grace: 1s}\n"
)
TWO = ONE + "  two: {engine: llamacpp, source: /models/two.gguf}\n"


async def log_of(control: Control) -> LogId:
    return LogId((await control.until_leading())["log"])


async def served(control: Control) -> tuple[int, object]:
    answer = await control.ask("state")
    assert answer is not None
    return answer["asOfSeq"], answer["state"]


# spec: L2 L4 L6
async def test_a_killed_control_comes_back_with_the_same_state(
    nats: NatsServer, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as node:
        assert (await control.apply(ONE))[0] == 200
        await node.until_assigned(1)
        await node.report("ready")

        async def routed() -> object:
            answer = await control.ask("replicas")
            return answer and answer["items"] and answer["items"][0]["routed"]

        await eventually(routed, "the replica is routed")
        sequence, before = await served(control)
        control.program.kill()
        began = time.monotonic()
        control.program.start()
        status = await control.until_leading()
        print(f"led {time.monotonic() - began:.2f} s after its start")  # noqa: T201
        again, after = await served(control)
        events = await read_log(nats.url, again)
        assert [event.type for at, _, event in events if at > sequence] == ["control.claimed"]
        assert status["replicas"] == {"ready": 1}
        control.program.kill()
    assert msgspec.json.decode(dump_of([e for e in events if e[0] <= sequence])) == before
    assert msgspec.json.decode(dump_of(events)) == after


# spec: L1
async def test_with_an_emptied_disk_it_shows_and_decides_the_same(
    connection: Connection, controls: Controls
) -> None:
    first = controls.start("control-1")
    log = await log_of(first)
    async with a_live_node("node-1", connection, log) as node:
        await first.apply(TWO)
        told = await node.until_assigned(2)
        first.program.kill()
        other = controls.start("control-2")
        assert await log_of(other) == log
        assert await node.assignment() == told
        answer = await other.ask("catalog")
        assert answer is not None
        assert sorted(answer["source"]["models"]) == ["one", "two"]


# spec: R2 R3 R4
async def test_a_node_that_dies_is_lost_only_when_it_answers_no_probe_either(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as survivor:
        async with a_live_node("node-2", connection, log) as dying:
            await control.until_status(lambda s: s["nodes"] == {"alive": 2}, "sees both")
            await control.apply(ONE.replace("patience", "replicas: 2, patience"))
            await dying.until_assigned(1)
            await survivor.until_assigned(1)
            await dying.report("ready")
            await survivor.report("ready")
            dying.beating = False
            await control.until_status(lambda s: s["nodes"].get("unreachable") == 1, "misses one")
            began = time.monotonic()
            while time.monotonic() - began < 2:  # Its patience has passed; it still answers.
                status = await control.ask("status")
                assert status is not None
                assert "lost" not in status["nodes"]
        await control.until_status(lambda s: s["nodes"].get("lost") == 1, "gives it up")
        await survivor.until_assigned(2)


# spec: L3
async def test_nats_away_moves_nothing_and_ends_no_control(
    nats: NatsServer, connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        nats.kill()
        await control.until_status(
            lambda s: any("NATS is away" in line for line in s["warnings"]), "notices"
        )
        status = await control.ask("status")
        assert status is not None
        assert status["nodes"] == {"alive": 1}
        nats.start()
        await control.until_status(lambda s: s["leading"] and len(s["warnings"]) == 1, "is back")
        await control.apply(TWO)
        await node.until_assigned(2)
        replicas = await control.ask("replicas")
        assert replicas is not None
        assert [row["replica"] for row in replicas["items"]] == ["one-0-1", "two-0-1"]


async def test_starts_before_nats(nats: NatsServer, controls: Controls) -> None:
    nats.stop()
    control = controls.start()
    await control.until_status(lambda s: not s["leading"], "answers")
    nats.start()
    await control.until_leading()


async def test_a_probe_is_a_request_that_says_200(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    await control.until_leading()
    assert await answers(control.address)
    assert not await answers(f"127.0.0.1:{free_port()}")
    assert not await answers("nonsense")


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_log_that_was_deleted_is_damage_and_nothing_is_decided(
    nats: NatsServer, connection: Connection, controls: Controls, recreated: bool
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        for stream in ("FLOTILLA_LOG", "FLOTILLA_STATE")[: 1 + recreated]:
            await connection.request(f"$JS.API.STREAM.DELETE.{stream}", b"", 5.0)
        if recreated:
            await streams.create(connection)
        damaged = await control.until_status(lambda s: s["damage"], "notices")
        assert log in damaged["damage"]["reason"] + damaged["damage"]["knownLog"]
        assert damaged["replicas"] == {"placed": 1}
        status, refusal = await control.apply(TWO)
        assert (status, refusal["code"]) == (409, "damaged")
        control.program.kill()
        control.program.start()
        again = await control.until_status(lambda s: s["damage"], "notices again")
        assert not again["leading"]
        if recreated:
            assert await streams.head(connection) == 0
        else:
            assert not await streams.exists(connection)


async def put(
    connection: Connection, log: LogId, subject: str, document: object, version: int = 1
) -> None:
    event = an_event(document, log=log, id_=f"test-{subject}", version=version)
    written = await write(connection, Sealed(subject, EventId(f"test-{subject}"), event), 0)
    assert isinstance(written, Written)


async def test_a_log_that_names_the_lost_one_as_its_parent_is_followed(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = await log_of(control)
    await control.apply(ONE)
    for stream in ("FLOTILLA_LOG", "FLOTILLA_STATE"):
        await connection.request(f"$JS.API.STREAM.DELETE.{stream}", b"", 5.0)
    await control.until_status(lambda s: s["damage"], "notices")
    await streams.create(connection)
    new = LogId("f" * 32)
    await put(connection, new, subjects.GENESIS, a_genesis(new, parent=log))
    status = await control.until_status(lambda s: s["log"] == new and s["leading"], "moves over")
    assert status["damage"] is None
    # It has no catalog yet: until its recovery has ended, nothing is changed.
    assert "goes on from" in status["halted"][0]
    code, refusal = await control.apply(ONE)
    assert (code, refusal["code"]) == (409, "recovering")


# spec: L5
async def test_what_only_a_newer_version_understands_stops_deciding_and_nothing_else(
    connection: Connection, controls: Controls
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        await put(connection, log, "flotilla.log.s.future.thing", {"x": 1})
        status = await control.until_status(lambda s: s["halted"], "stops deciding")
        assert "flotilla.log.s.future.thing" in status["halted"][0]
        assert status["leading"]
        code, refusal = await control.apply(TWO)
        assert (code, refusal["code"]) == (409, "halted")
        await node.report("ready")
        await control.until_status(lambda s: s["replicas"] == {"ready": 1}, "follows")
        assert (await control.call("replicas"))[1]["items"][0]["routed"] is False


# spec: L4 L5
@pytest.mark.parametrize("subject", ["replica.one.0", "assignment.node-1"])
async def test_an_unreadable_document_and_a_restart_stop_nothing(
    nats: NatsServer, connection: Connection, controls: Controls, subject: str
) -> None:
    control = controls.start()
    log = await log_of(control)
    async with a_live_node("node-1", connection, log) as node:
        await control.apply(ONE)
        await node.until_assigned(1)
        await node.report("ready")
        await control.until_status(lambda s: s["replicas"] == {"ready": 1}, "sees it serve")
        control.program.kill()
        await connection.request(f"flotilla.log.s.{subject}", b'{"garbage', 5.0)
        control.program.start()
        status = await control.until_leading()
        assert status["replicas"] == {"ready": 1}
        sequence, state = await served(control)
        events = await raw_log(nats.url, sequence)
        lived = FleetState()
        for stored in events:
            lived.apply(stored.sequence, stored.subject, stored.payload)
        assert msgspec.json.decode(lived.dump()) == state
        assert "one-0-1" in str(state)
        assert (await control.apply(TWO))[0] == 200
        told = await node.until_assigned(2)
        assert "one-0-1" in [shard.replica for shard in told.shards]
