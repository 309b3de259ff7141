"""`append`: events a second through control's own append, one guarded batch in flight, by batch size.

Every write waits for its ack, and an ack means that the servers have it on disk (sync always). R1 is
one server, R3 three of them, which share this machine's cores and disk.
"""

import asyncio
import sys
import tempfile
from argparse import Namespace
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from time import monotonic, process_time, time

from msgspec import Struct

from bench.fleet import Fleet, Size, epoch
from bench.measuring import MACHINE, cpu_seconds, quantile, table
from schemas import codec
from services.log import streams
from services.log.append import Appended, Sealed, append, claim
from services.log.connect import Connection
from services.log.door import Door
from tests.support.nats_cluster import NatsCluster
from tests.support.nats_server import NatsServer

SMALL = Size(nodes=300, replicas=1500, models=10)


class Row(Struct):
    """One size of batch."""

    events: int
    batches: list[float]
    """Seconds of each."""
    client_cpu: float
    server_cpu: float


def run(options: Namespace) -> int:
    sys.stdout.write(f"{options.seconds:g} s each; {MACHINE}\n\n")
    rows: list[list[str]] = []
    for copies in options.copies:
        rows += asyncio.run(_measured(copies, options.batches, options.seconds))
    head = (
        "copies",
        "batch",
        "events/s",
        "ms a batch, p50",
        "p99",
        "client CPU, µs an event",
        "servers' CPU, µs an event",
    )
    sys.stdout.write(table(head, rows) + "\n")
    return 0


async def _measured(copies: int, sizes: list[int], seconds: float) -> list[list[str]]:
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with _log(copies, Path(folder)) as (connection, pids):
            fence = await claim(connection, epoch(), 0)
            assert fence is not None
            fleet = Fleet(SMALL, codec.rfc3339(time()))
            events = fleet.sealed(fleet.history())
            for size in sizes:
                found = await _row(connection, events, fence, size, seconds, pids)
                rows.append([f"R{copies}", str(size), *_cells(found)])
    return rows


@asynccontextmanager
async def _log(copies: int, folder: Path) -> AsyncGenerator[tuple[Connection, list[int]]]:
    """The streams on one server or three, and the servers' pids."""
    cluster = NatsCluster(folder) if copies > 1 else None
    servers = cluster.servers if cluster else [NatsServer(folder)]
    await asyncio.to_thread(servers[0].start if cluster is None else cluster.start)
    if cluster is not None:
        await cluster.until_complete()
    connection = Connection(Door(url=",".join(server.url for server in servers)), "bench")
    await connection.start()
    await connection.wait_connected()
    try:
        await streams.create(connection, copies)
        yield connection, [server.pid for server in servers]
    finally:
        await connection.close()
        for server in servers:
            server.kill()


async def _row(
    connection: Connection,
    events: Iterator[Sealed],
    fence: int,
    size: int,
    seconds: float,
    pids: list[int],
) -> Row:
    row = Row(0, [], 0.0, -sum(cpu_seconds(pid) for pid in pids))
    began = monotonic()
    while monotonic() - began < seconds:
        batch = list(islice(events, size))  # Made here: its CPU time is not the append's.
        spent, sent = process_time(), monotonic()
        outcome = await append(connection, batch, fence)
        row.batches.append(monotonic() - sent)
        row.client_cpu += process_time() - spent
        assert isinstance(outcome, Appended), outcome
        row.events += size
    row.server_cpu += sum(cpu_seconds(pid) for pid in pids)
    return row


def _cells(row: Row) -> list[str]:
    return [
        f"{row.events / sum(row.batches):,.0f}",
        f"{1000 * quantile(row.batches, 0.5):.1f}",
        f"{1000 * quantile(row.batches, 0.99):.1f}",
        f"{1e6 * row.client_cpu / row.events:.0f}",
        f"{1e6 * row.server_cpu / row.events:.0f}",
    ]
