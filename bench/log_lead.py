"""`lead`: a leader of a large fleet while every agent beats and, after a while, events come in.

Agents beat every two seconds. First nothing else happens; then, in the second half, one agent reports
each `--every` seconds. Said are the longest gap between two beats of the leader, which another control
would take for its end at 1.5 s, its passes over the fleet and what one takes, and its CPU time.
"""

import asyncio
import shutil
import sys
import tempfile
import urllib.request
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from time import monotonic, time

from msgspec import Struct

from bench.fleet import CONTROL, LOG_ID, Fleet, Size
from bench.history import kept_logs
from bench.measuring import MACHINE, cpu_seconds, table
from schemas import codec, subjects
from schemas.beats import AgentBeat
from schemas.ids import NodeId
from services.log.connect import Connection
from services.log.door import Door
from services.log.message import Message
from tests.support.control import Control
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

BEAT_SECONDS = 2.0
SLICES = 20
"""In which the beats of one round are sent."""
START_SECONDS = 20.0


class Watched(Struct):
    """A stretch of time with one leader."""

    what: str
    seconds: float
    longest_gap: float
    passes: int
    pass_seconds: float
    cpu: float


def run(options: Namespace) -> int:
    size = Size(options.nodes, options.replicas, options.models)
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(options.folder or scratch)
        (store,) = asyncio.run(kept_logs(kept, size, [options.history[0]])).values()
        folder = Path(scratch) / "round"
        shutil.copytree(store, folder)
        found = asyncio.run(_lead(folder, size, options))
    sys.stdout.write(f"{size.nodes:,} nodes, {size.replicas:,} replicas; {MACHINE}\n\n")
    rows = [
        (
            each.what,
            f"{each.longest_gap:.2f} s",
            f"{each.passes / each.seconds:.2f}",
            f"{each.pass_seconds / max(1, each.passes):.2f} s",
            f"{100 * each.cpu / each.seconds:.0f} %",
        )
        for each in found
    ]
    head = ("while", "longest gap between beats", "passes/s", "a pass takes", "CPU, of one core")
    sys.stdout.write(table(head, rows) + "\n")
    return 0


async def _lead(folder: Path, size: Size, options: Namespace) -> list[Watched]:
    fleet = Fleet(size, codec.rfc3339(time()))
    server = NatsServer(folder)
    server.start()
    connection = Connection(Door(url=server.url), "agents")
    await connection.start()
    await connection.wait_connected()
    control = Control(CONTROL, server, folder)
    beats: list[float] = []

    def heard(_: Message) -> None:
        beats.append(monotonic())

    await connection.subscribe(subjects.control_beat(CONTROL), heard)
    agents = asyncio.ensure_future(_beat(connection, size.nodes))
    try:
        control.program.start()
        await until(lambda: beats, START_SECONDS)
        await asyncio.sleep(START_SECONDS)  # The missing replica is placed, the API is open.
        quiet = await _watched("agents beat", control, beats, options.seconds)
        reports = asyncio.ensure_future(_report(connection, fleet, options.every))
        busy = await _watched(
            f"one reports each {options.every:g} s", control, beats, options.seconds
        )
        reports.cancel()
    finally:
        agents.cancel()
        control.program.kill()
        await connection.close()
        server.kill()
    return [quiet, busy]


async def _watched(what: str, control: Control, beats: list[float], seconds: float) -> Watched:
    pid = control.program.pid
    passes, took = await asyncio.to_thread(_passes, control.address)
    spent, began = cpu_seconds(pid), monotonic()
    del beats[:-1]
    await asyncio.sleep(seconds)
    gaps = [later - earlier for earlier, later in pairwise([*beats, monotonic()])]
    passes_now, took_now = await asyncio.to_thread(_passes, control.address)
    return Watched(
        what,
        monotonic() - began,
        max(gaps),
        round(passes_now - passes),
        took_now - took,
        cpu_seconds(pid) - spent,
    )


def _passes(address: str) -> tuple[float, float]:
    """How many passes, and their seconds, by control's own metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    turns = "flotilla_control_turns_total", "flotilla_control_turn_seconds_total"
    return float(lines[turns[0]]), float(lines[turns[1]])


async def _beat(connection: Connection, nodes: int) -> None:
    beats = [
        AgentBeat(
            node=NodeId(f"n{number:05d}"),
            incarnation=f"agent-n{number:05d}",
            log=LOG_ID,
            highest=0,
            assignment=0,
        )
        for number in range(nodes)
    ]
    while True:
        for part in range(SLICES):
            ends = monotonic() + BEAT_SECONDS / SLICES
            for beat in beats[part::SLICES]:
                subject = subjects.agent_beat(beat.node)
                await connection.publish(subject, codec.encode(beat))
            await asyncio.sleep(max(0.0, ends - monotonic()))


async def _report(connection: Connection, fleet: Fleet, every: float) -> None:
    for event in fleet.sealed(fleet.history()):
        if ".shard." in event.subject:
            await connection.publish(event.subject, event.payload)
            await asyncio.sleep(every)
