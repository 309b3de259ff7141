"""The day the log is lost, and every way out of it: one living fleet goes through them one after another.

In each: engines keep their pids, requests go on being answered, nothing is decided until an operator
chooses a way, and status is OK after it.
"""

import asyncio
import json
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from schemas import subjects
from schemas.ids import LogId, ModelName, NodeId
from services.log import streams
from services.log.connect import Connection
from tests.builders import a_genesis, an_event
from tests.support.fleet import LiveFleet, catalog_of, tiny_entry
from tests.support.load import streaming
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def administrator(fleet: LiveFleet) -> AsyncGenerator[Connection]:
    connection = Connection(fleet.nats.url, "slip")
    await connection.start()
    try:
        await connection.wait_connected()
        yield connection
    finally:
        await connection.close()


async def ask(
    connection: Connection, verb: str, body: object = None, stream: str = subjects.LOG
) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await connection.request(f"$JS.API.STREAM.{verb}.{stream}", payload, 5)
    answer: dict[str, Any] = json.loads(reply.payload)
    assert "error" not in answer, answer
    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def living(
    tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path
) -> AsyncIterator[LiveFleet]:
    """Control, router and two agents with `tiny` ready on each, for all tests here."""
    async with LiveFleet(tmp_path_factory.mktemp("living")) as fleet:
        fleet.add_control()
        fleet.add_router()
        fleet.add_node("node-1")
        fleet.add_node("node-2")
        await fleet.until_up()
        await fleet.until_nodes("node-1", "node-2")
        await fleet.apply(catalog_of(tiny_entry("tiny", tiny_gguf)))
        await fleet.until_ready("tiny", 2)
        await fleet.until_served("tiny")
        yield fleet


def restart(fleet: LiveFleet, *names: str) -> None:
    for name in names:
        fleet.programs[name].kill()
        fleet.programs[name].start()


async def ways_out(fleet: LiveFleet) -> dict[str, dict[str, Any]]:
    answer = await eventually(lambda: fleet.ask("journal/recovery"), "the ways out are told")
    return {way["way"]: way for way in answer["ways"]}


async def possible(fleet: LiveFleet) -> list[str]:
    return [name for name, way in (await ways_out(fleet)).items() if not way.get("impossible")]


async def damage_of(fleet: LiveFleet) -> dict[str, Any]:
    async def said() -> dict[str, Any] | None:
        answer = await fleet.ask("status")
        return answer["damage"] if answer and answer.get("damage") else None

    return await eventually(said, "status names the damage")


async def chosen(fleet: LiveFleet, request: dict[str, object]) -> dict[str, Any]:
    """The answer, once agents have been listened to for long enough."""

    async def answered() -> dict[str, Any] | None:
        try:
            answer = (await fleet.call("journal/recovery", request))[1]
        except aiohttp.ClientError:
            return None  # It was restarted just now.
        return None if answer.get("code") == "not_heard_yet" else answer

    return await eventually(answered, "a way is chosen")


async def recover(fleet: LiveFleet, way: str, **options: object) -> None:
    """Take a way out, and wait until the fleet is as it was."""
    answer = await chosen(fleet, {"way": way, **options})
    assert answer["kind"] == "Accepted", json.dumps(answer)
    await until_sound(fleet)


async def until_sound(fleet: LiveFleet) -> None:
    """Until there is nothing to complain of."""

    async def sound() -> bool:
        status = await fleet.ask("status")
        return (
            status is not None
            and status["leading"]
            and not status["damage"]
            and not status["halted"]
            and not status["attention"]
            and status["replicas"] == {"ready": 2}
        )

    await eventually(sound, "the fleet is as it was")


@asynccontextmanager
async def untouched(fleet: LiveFleet) -> AsyncGenerator[None]:
    """Engines run on and requests are answered, whatever is done to the log."""
    pids = await fleet.engine_pids()
    assert len(pids) == 2
    async with streaming(fleet.base_url(), "tiny", clients=2) as load:
        await load.at_least(5)
        yield
        await load.more(10)
    assert load.failures() == {}
    assert await fleet.engine_pids() == pids


async def seen_beyond(fleet: LiveFleet) -> None:
    """Until control's disk knows of the newest message."""
    path = fleet.root / "control-1" / "control" / "seen.json"
    status = await fleet.ask("status")
    assert status is not None

    async def noted() -> bool:
        return bool(json.loads(path.read_bytes())["highest"] >= status["asOfSeq"])

    await eventually(noted, "control has noted how far the log went")


async def test_a_wiped_store_is_recovered_from_memory(living: LiveFleet) -> None:
    # spec: L1, T9
    fleet = living
    async with untouched(fleet):
        fleet.nats.kill()
        shutil.rmtree(fleet.nats.directory / "store")
        fleet.nats.start()
        damage = await damage_of(fleet)
        assert "does not exist" in damage["reason"]
        assert "was followed to" in damage["reason"]
        ways = await ways_out(fleet)
        assert ways["memory"]["replicas"] == 2
        assert ways["log"]["impossible"] == "nothing of a log stands in NATS"
        await recover(fleet, "memory")


SLOWLY = """
import asyncio, sys
from services.journal import __main__, importing
write = importing.restore

async def slow(*words):
    await write(*words)
    await asyncio.sleep(0.3)

importing.MAX_BATCH = 2
importing.restore = slow
sys.exit(__main__.main())
"""
"""An import that lasts longer than it takes a program to look at the log again."""


async def journal(fleet: LiveFleet, *words: str) -> None:
    command = (*words, "--nats-url", fleet.nats.url)
    program = await create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=STDOUT)
    told, _ = await program.communicate()
    assert program.returncode == 0, told.decode()


@pytest.mark.parametrize("control", ["runs", "is stopped"])
async def test_a_wiped_store_is_imported_beneath_a_running_fleet(
    living: LiveFleet, tmp_path: Path, control: str
) -> None:
    # spec: L1, L7, T9
    fleet, folder = living, str(tmp_path / "journal")
    async with untouched(fleet):
        await journal(fleet, "-m", "services.journal", "export", folder)
        if control == "is stopped":
            fleet.programs["control-1"].kill()
        fleet.nats.kill()
        shutil.rmtree(fleet.nats.directory / "store")
        fleet.nats.start()
        importing = asyncio.create_task(journal(fleet, "-c", SLOWLY, "import", folder))
        async with administrator(fleet) as connection:

            async def begun() -> bool:
                return await streams.has(connection, subjects.LOG) and bool(
                    await streams.head(connection)
                )

            await eventually(begun, "the import has begun")
        (fleet.root / "node-2" / "agent" / "seen.json").unlink()
        restart(fleet, "node-2")  # It would take any log for the one to follow.
        await importing
        await journal(fleet, "-m", "services.journal", "verify")
        if control == "is stopped":
            fleet.programs["control-1"].start()

        async def seen_by_control() -> bool:
            return "was shortened" in (await damage_of(fleet))["reason"]

        await eventually(seen_by_control, "control has seen what was imported")
        await recover(fleet, "log")


async def test_a_deleted_stream_is_recovered_from_what_state_holds(living: LiveFleet) -> None:
    fleet = living
    async with untouched(fleet):
        async with administrator(fleet) as connection:
            await ask(connection, "DELETE")
        await damage_of(fleet)
        restart(fleet, "control-1", "node-1")
        assert "memory" not in await possible(fleet)
        since = (await damage_of(fleet))["since"]
        restart(fleet, "control-1")
        assert (await damage_of(fleet))["since"] == since
        await chosen(fleet, {"way": "log"})
        restart(fleet, "control-1")  # Its disk has what was chosen: it goes on.
        await until_sound(fleet)


async def test_with_nothing_left_the_fleet_is_taken_over_from_its_agents_also_one_that_is_away(
    living: LiveFleet, tiny_gguf: Path
) -> None:
    # spec: R1
    fleet = living
    # What runs on the node that is away fits nowhere else.
    catalog = catalog_of(tiny_entry("tiny", tiny_gguf, cpu="{cores: 5, memory: 128MiB}"))
    async with untouched(fleet):
        fleet.programs["node-2"].kill()
        async with administrator(fleet) as connection:
            for stream in (subjects.LOG, subjects.STATE):
                await ask(connection, "DELETE", stream=stream)
        await damage_of(fleet)
        restart(fleet, "control-1")

        async def heard() -> bool:
            answer = await fleet.ask("journal/recovery")
            return answer is not None and answer["running"] == {"tiny": 1}

        await eventually(heard, "the agent that is left says what it runs")
        assert set(await possible(fleet)) == {"agents"}
        assert (await ways_out(fleet))["agents"]["away"] == ["node-2"]
        none = catalog.replace("replicas: 2", "replicas: 0")
        wrong: tuple[tuple[dict[str, object], str], ...] = (
            ({"way": "memory"}, "impossible"),
            ({"way": "agents"}, "no_catalog"),
            ({"way": "agents", "catalog": "models: {}"}, "would_stop"),
            ({"way": "agents", "catalog": none}, "would_stop"),
            ({"way": "agents", "catalog": catalog}, "nodes_away"),
        )
        for refused, code in wrong:
            assert (await chosen(fleet, refused))["code"] == code
        named = await chosen(fleet, {"way": "agents", "catalog": catalog, "without": ["node-2"]})
        assert named["kind"] == "Accepted", json.dumps(named)
        await fleet.until_ready("tiny", 1)
        fleet.programs["node-2"].start()
        await until_sound(fleet)


async def test_an_older_copy_is_gone_on_from(living: LiveFleet, tmp_path: Path) -> None:
    fleet, store = living, living.nats.directory / "store"
    fleet.nats.kill()
    shutil.copytree(store, tmp_path / "copy")
    fleet.nats.start()
    async with untouched(fleet):
        await fleet.call("catalog", {"source": "models: {}"})  # Refused, and recorded.
        await seen_beyond(fleet)
        fleet.nats.kill()
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "copy", store)
        fleet.nats.start()
        assert "was shortened" in (await damage_of(fleet))["reason"]
        restart(fleet, "control-1")
        await recover(fleet, "log")


async def test_a_truncated_log_is_gone_on_from_by_what_state_holds(living: LiveFleet) -> None:
    fleet = living
    async with untouched(fleet):
        async with administrator(fleet) as connection:
            config = (await ask(connection, "INFO"))["config"]
            await ask(connection, "DELETE")
            config.pop("first_seq", None)
            await ask(connection, "CREATE", config)
        assert "STATE goes to" in (await damage_of(fleet))["reason"]
        restart(fleet, "control-1")
        await recover(fleet, "log")


async def test_garbage_on_our_subjects_is_set_aside_and_mended(living: LiveFleet) -> None:
    # spec: L5
    fleet = living
    bad = (
        subjects.CATALOG,
        subjects.replica(ModelName("tiny"), 0),
        "flotilla.log.s.strange.thing",
    )
    ghost = subjects.node_shard(NodeId("ghost"), 3)
    async with untouched(fleet):
        async with administrator(fleet) as connection:
            for subject in bad:
                await connection.request(subject, b"garbage", 5)
            for subject in (f"{subjects.STATE_ROOT}sun", ghost):
                await connection.request(subject, an_event({}, version=99), 5)
            event = an_event({}, version=99, optional=True)
            await connection.request(f"{subjects.STATE_ROOT}moon", event, 5)
            shard = subjects.node_shard(NodeId("node-1"), 0)
            await connection.request(shard, b"garbage", 5)

        async def named() -> bool:
            status = await fleet.ask("status")
            lines = "".join(status["attention"]) if status else ""
            return all(f"flotilla journal mend {subject}" in lines for subject in (*bad, ghost))

        await eventually(named, "status names every bad document")
        found = await eventually(lambda: fleet.ask("journal/bad"), "bad documents are listed")
        rows = {row["subject"]: row for row in found["items"]}
        assert rows[shard]["writer"] == "agent node-1"
        assert rows[subjects.CATALOG]["lastGood"] > 0
        assert rows["flotilla.log.s.moon"]["optional"]
        restart(fleet, "control-1", "node-1")  # Its agent writes its own document anew.
        await eventually(named, "a restarted control does, too")
        await fleet.until_up()
        for subject in (*bad, f"{subjects.STATE_ROOT}sun", ghost):
            to = "gone" if rows[subject]["command"].endswith("--gone") else "last-good"
            code, answer = await fleet.call("journal/bad", {"subject": subject, "to": to})
            assert code == 200, json.dumps(answer)
        await until_sound(fleet)


async def test_a_byte_that_flips_on_the_disk_costs_no_engine(living: LiveFleet) -> None:
    fleet, store = living, living.nats.directory / "store"
    async with untouched(fleet):
        await seen_beyond(fleet)
        fleet.nats.kill()
        # After a kill the server cuts LOG at the block's first bad message.
        (block,) = store.rglob(f"{subjects.LOG}/msgs/*.blk")
        content = bytearray(block.read_bytes())
        content[len(content) // 2] ^= 0x40
        block.write_bytes(content)
        fleet.nats.start()
        damage = await damage_of(fleet)
        assert damage["head"] < damage["highestKnown"]
        # STATE may not have been fed again yet since the last recovery.
        await recover(fleet, "memory")


async def test_a_foreign_genesis_is_damage_and_is_recovered_from_what_stands(
    living: LiveFleet,
) -> None:
    fleet = living
    genesis = an_event(a_genesis(LogId("f" * 32)), log=LogId("f" * 32))
    async with untouched(fleet):
        async with administrator(fleet) as connection:
            await connection.request(subjects.GENESIS, genesis, 5)
        assert "another log" in (await damage_of(fleet))["reason"]
        restart(fleet, "control-1")
        await recover(fleet, "log")


async def test_a_state_file_that_cannot_be_read_ends_no_engine(living: LiveFleet) -> None:
    # spec: A5
    fleet = living
    agent = fleet.programs["node-1"]
    async with untouched(fleet):
        agent.kill()
        (state,) = (fleet.root / "node-1" / "agent" / "shards").glob("tiny-*[0-9].json")
        state.write_bytes(state.read_bytes()[:40])
        agent.start()

        async def mended() -> bool:
            return state.read_bytes().endswith(b"}")

        await eventually(mended, "its state is on disk again")
        await until_sound(fleet)
    assert "shard.found" in agent.log.read_text()


async def test_a_purged_log_has_lost_its_past_and_nothing_else(living: LiveFleet) -> None:
    fleet = living
    async with untouched(fleet):
        async with administrator(fleet) as connection:
            config = (await ask(connection, "INFO"))["config"]
            for most in (1, -1):  # The server lets nobody lift deny_purge; a limit does as much.
                await ask(connection, "UPDATE", config | {"max_msgs": most})
        restart(fleet, "control-1", "node-1")

        async def told() -> bool:
            status = await fleet.ask("status")
            return bool(
                status
                and status["leading"]
                and not status["damage"]
                and any("the history before it was purged" in line for line in status["warnings"])
            )

        await eventually(told, "status names the purge")
        await fleet.until_ready("tiny", 2)
