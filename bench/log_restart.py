"""`restart`: from the start of the process to its first batch, read back from LOG by somebody else.

Control's own id holds the epoch, as after a crash, and one replica has ended meanwhile, so its first
pass must decide something: it unroutes the old one, places another and tells both nodes. The time
ends when the new replica's event has come back from LOG to this process, which follows it like any
follower. Nothing is kept warm: each round has a store of its own, and a server started on it.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from time import monotonic, time

from msgspec import Struct

from bench.fleet import CONTROL, Size
from bench.history import kept_logs
from bench.measuring import MACHINE, cpu_seconds, median, resident_mib, table
from schemas import codec, subjects
from services.log import streams
from services.log.connect import Connection
from services.log.door import Door
from services.log.tail import Tail
from tests.support.control import Control
from tests.support.nats_server import NatsServer

LONGEST_SECONDS = 60.0


class Round(Struct):
    """Seconds since the start of the process, and what it took."""

    connected: float
    read: float
    leads: float
    first_batch: float
    control_cpu: float
    server_cpu: float
    resident_mib: float
    head: int


def run(options: Namespace) -> int:
    size = Size(options.nodes, options.replicas, options.models)
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(options.folder or scratch)
        logs = asyncio.run(kept_logs(kept, size, options.history))
        found: dict[int, list[Round]] = {length: [] for length in logs}
        for _ in range(options.rounds):
            for length, store in logs.items():  # Side by side, so that noise meets all alike.
                found[length].append(asyncio.run(one_round(store, Path(scratch) / "round")))
    sys.stdout.write(
        f"{options.nodes:,} nodes, {options.replicas:,} replicas; medians of "
        f"{options.rounds} rounds, quickest in brackets; {MACHINE}\n\n"
    )
    head = (
        "history",
        "events in LOG",
        "connected",
        "state read",
        "leads",
        "first batch",
        "CPU of control",
        "CPU of server",
        "memory",
    )
    sys.stdout.write(table(head, [_row(length, rounds) for length, rounds in found.items()]) + "\n")
    return 0


def _row(length: int, rounds: list[Round]) -> list[str]:
    def of(name: str) -> str:
        values = [getattr(each, name) for each in rounds]
        return f"{median(values):.2f} ({min(values):.2f}) s"

    return [
        f"{length:,}",
        f"{rounds[0].head:,}",
        *(
            of(name)
            for name in ("connected", "read", "leads", "first_batch", "control_cpu", "server_cpu")
        ),
        f"{median([each.resident_mib for each in rounds]):.0f} MiB",
    ]


async def one_round(store: Path, folder: Path) -> Round:
    """A server on a copy of the store, a control that has never been here, and a watcher."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store, folder)
    server = NatsServer(folder)
    server.start()
    watcher = Connection(Door(url=server.url), "watcher")
    await watcher.start()
    await watcher.wait_connected()
    control = Control(CONTROL, server, folder)
    try:
        head = await streams.head(watcher)
        tail = Tail(watcher, head)
        async with asyncio.timeout(LONGEST_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(_until_placed(tail))
            await tail.caught_up.wait()
            served, wall = cpu_seconds(server.pid), time()
            began = monotonic()
            control.program.start()
            ended = await waiting
        spent = cpu_seconds(control.program.pid), cpu_seconds(server.pid) - served
        memory = resident_mib(control.program.pid)
        at = _times(control.program.log, wall)
        return Round(
            at["nats.connected"],
            at["log.read"],
            at["control.leads"],
            ended - began,
            *spent,
            memory,
            head,
        )
    except BaseException:
        sys.stderr.write(control.program.tail())
        raise
    finally:
        control.program.kill()
        await watcher.close()
        server.kill()


async def _until_placed(tail: Tail) -> float:
    """When the first replica that this control places has come back."""
    prefix = subjects.ALL_REPLICAS.removesuffix(">")
    async for batch in tail.batches():
        for stored in batch:
            event = codec.decode_event(stored.payload)
            if stored.subject.startswith(prefix) and event.type == "replica.placed":
                return monotonic()
    raise AssertionError("a tail does not end")


def _times(file: Path, began: float) -> dict[str, float]:
    """When control said what for the first time, in seconds after `began`."""
    found: dict[str, float] = {}
    for line in file.read_text().splitlines():
        told = json.loads(line)
        at = datetime.fromisoformat(told["timestamp"]).timestamp()
        found.setdefault(told["event"], at - began)
    return found
