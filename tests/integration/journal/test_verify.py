"""Every kind of fault, made in a real log, is found there and told."""

import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE

import pytest

from schemas import subjects
from services.control.checkpoint import write as write_checkpoint
from services.fleet.telling.moments import AtSequence
from services.journal.checks import Finding
from services.journal.verify import Verified, Verify
from services.log import streams
from services.log.api import call
from services.log.connect import Connection
from services.log.restore import restore
from services.log.streams import StreamInfo
from services.runtime.failure import Exit, Failure
from tests.builders import a_verdict
from tests.support.nats_server import NatsServer
from tests.support.past import NEXT_ID, Past, age_away, begun, followed, written

VERDICT = "flotilla.log.s.node.node-1.verdict"


async def verify(log: Connection, since: int | None = None) -> tuple[Verified, list[Finding]]:
    found: list[Finding] = []
    moment = None if since is None else AtSequence(since)
    done = await Verify(log, found.append, lambda _: None).run(moment)
    assert done.findings == len(found)
    return done, found


async def test_a_sound_log_has_no_findings(log: Connection) -> None:
    await written(log, begun().pass_by(300))
    await write_checkpoint(log, 1_800_000_000.0)
    done, found = await verify(log)
    assert found == []
    assert (done.first, done.last, done.events, done.checkpoints) == (1, 302, 302, 1)
    assert done.documents > 7
    assert (await verify(log, 250))[0].events == 53
    await age_away(log, 100)
    assert await verify(log) == (Verified(100, 302, 203, done.documents, 1, 0), [])


async def test_each_fault_of_an_event_is_found_with_its_sequence(
    nats: NatsServer, log: Connection
) -> None:
    past = begun().pass_by(40)
    superseded = past.fence
    past.claim()
    wanted = [
        (past.put(VERDICT, b"\x1b[2Jnot an event"), "unreadable"),
        (past.say(VERDICT, a_verdict(), "agent/node-1"), "writer"),
        (past.say(VERDICT, a_verdict(), log_id=NEXT_ID), "log"),
        (past.say(VERDICT, a_verdict(), epoch=superseded), "epoch"),
    ]
    await written(log, past)
    _, found = await verify(log)
    assert [(each.sequence, each.kind) for each in found] == wanted
    words = ["-m", "services.journal", "verify", "--nats-url", nats.url]
    program = await create_subprocess_exec(sys.executable, *words, stdout=PIPE)
    told = (await program.communicate())[0].decode()
    assert program.returncode == Exit.NO
    assert [line.split()[:2] for line in told.splitlines()[:-1]] == [
        [str(sequence), kind] for sequence, kind in wanted
    ]
    assert told.splitlines()[-1].startswith("4 findings in 47 events (1 to 47)")
    assert "\x1b" not in told


async def test_a_hole_in_the_log_is_found(connection: Connection) -> None:
    """Made before the stream is put right: ours lets nothing be deleted."""
    config = {
        "name": subjects.LOG,
        "subjects": [subjects.LOG_ROOT + ">"],
        "storage": "file",
        "allow_atomic": True,
        "allow_direct": True,
    }
    await call(connection, "STREAM.CREATE.FLOTILLA_LOG", config, StreamInfo)
    await restore(connection, begun().pass_by(30).messages)
    await call(connection, "STREAM.MSG.DELETE.FLOTILLA_LOG", {"seq": 8}, dict[str, object])
    await streams.create(connection)
    await followed(connection)
    _, found = await verify(connection)
    assert found == [Finding(8, "gap", "LOG does not hold 8")]


async def test_state_that_differs_from_the_log_is_found(log: Connection) -> None:
    await written(log, begun().pass_by(30))
    verb = "STREAM.PURGE.FLOTILLA_STATE"
    await call(log, verb, {"filter": VERDICT}, dict[str, object])
    _, found = await verify(log)
    assert [(each.kind, VERDICT in each.reason) for each in found] == [("state", True)]


async def test_a_checkpoint_that_is_of_no_use_is_found(log: Connection) -> None:
    await written(log, begun().pass_by(30))
    made = await write_checkpoint(log, 1_800_000_000.0)
    await log.request(subjects.checkpoint_chunk(made.id, 0), b"harmed", 5.0)
    _, found = await verify(log)
    assert [(each.sequence, each.kind) for each in found] == [(made.sequence, "checkpoint")]


async def test_a_log_without_a_genesis_is_told_apart_from_a_sound_one(log: Connection) -> None:
    past = Past()
    past.say(VERDICT, a_verdict())
    await written(log, past)
    with pytest.raises(Failure, match="has not begun"):
        await verify(log)
