"""A program that contradicts what control knows of the log, over a real nats-server."""

import asyncio
from pathlib import Path

import pytest

from schemas import codec, subjects
from schemas.beats import AgentBeat
from schemas.ids import LogId, NodeId
from services.control import loop as control_loop
from services.control.loop import Loop
from services.fleet.damage import read_seen
from services.log.connect import Connection
from tests.support.waiting import until

OTHER = LogId("f" * 32)


# spec: L1
async def test_one_liar_is_named_and_stops_nobody_and_two_are_damage(
    leading: tuple[Loop, asyncio.Task[None]],
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    loop, _ = leading
    monkeypatch.setattr(control_loop, "PROVEN_SECONDS", 0.0)
    told = {f"node-{n}": loop.state.log_id for n in range(1, 6)}
    assert told["node-1"] is not None

    async def beat() -> None:
        while True:
            for node, log_id in told.items():
                said = AgentBeat(
                    node=NodeId(node), incarnation="i", log=log_id, highest=1, assignment=0
                )
                await connection.publish(subjects.agent_beat(said.node), codec.encode(said))
            await asyncio.sleep(0.2)

    beating = asyncio.ensure_future(beat())
    try:
        await until(lambda: len(loop.ears.reports()) == len(told))
        await until(lambda: is_proven(tmp_path / "seen.json"))
        told["node-5"] = OTHER
        await until(lambda: bool(loop.opener.doubted))
        assert loop.opener.doubted[0].who == "agent node-5"
        assert (loop.damage, loop.leading) == (None, True)
        told["node-4"] = OTHER
        await until(lambda: loop.damage is not None)
    finally:
        beating.cancel()


def is_proven(file: Path) -> bool:
    seen = read_seen(file.read_bytes() if file.exists() else None)
    return seen is not None and seen.proven
