"""`fanout`: from control's append of an endpoint document to its being applied by a hundred routers.

The followers are those of routers, each over a connection of its own, spread over a few processes. An
event carries the machine's monotonic time in its id, taken before it is appended.
"""

import asyncio
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from time import monotonic, monotonic_ns, process_time, time

from msgspec import Struct

from bench.fleet import CONTROL, Written, epoch
from bench.measuring import MACHINE, cpu_seconds, quantile, table
from schemas import codec, subjects
from schemas.documents import Endpoint, EndpointShard
from schemas.ids import EventId, ModelName, NodeId, replica_id
from services.fleet.families import family_of, read_document
from services.log import streams
from services.log.append import Appended, Sealed, append, claim
from services.log.connect import Connection
from services.log.door import Door
from services.log.follow import Follower
from services.log.stored import Stored
from services.runtime.process import configure_logging
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

READY = "ready\n"
ENDPOINTS = 20
"""Ready replicas of each model."""


class Heard(Struct):
    """What one process has to tell in the end."""

    seconds: list[float]
    cpu: float


def run(options: Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder))
        server.start()
        try:
            heard, appends, served = asyncio.run(_spread(server, options))
        finally:
            server.kill()
    seconds = [value for each in heard for value in each.seconds]
    expected = options.changes * options.followers
    assert len(seconds) == expected, f"{len(seconds)} of {expected} were applied"
    row = [
        str(options.followers),
        f"{1000 * quantile(appends, 0.5):.1f}",
        *(f"{1000 * quantile(seconds, share):.1f}" for share in (0.5, 0.99, 1.0)),
        f"{1e6 * sum(each.cpu for each in heard) / expected:.0f}",
        f"{1e6 * served / expected:.0f}",
    ]
    head = (
        "followers",
        "append to ack, ms p50",
        "append to applied, ms p50",
        "p99",
        "worst",
        "follower CPU, µs an event",
        "server CPU, µs a delivery",
    )
    sys.stdout.write(
        f"{options.changes} changes of endpoints, {options.models} models; {MACHINE}\n\n"
        + table(head, [row])
        + "\n"
    )
    return 0


async def _spread(server: NatsServer, options: Namespace) -> tuple[list[Heard], list[float], float]:
    connection = Connection(Door(url=server.url), "bench")
    await connection.start()
    await connection.wait_connected()
    await streams.create(connection)
    fence = await claim(connection, epoch(), 0)
    assert fence is not None
    for number in range(options.models):
        await append(connection, [_change(number, f"first-{number}")], fence)
    share = options.followers // options.processes
    arguments = [
        sys.executable,
        "-m",
        "bench.log_fanout",
        server.url,
        str(share),
        str(options.models),
    ]
    workers = [_worker(arguments) for _ in range(options.processes)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert await asyncio.to_thread(worker.stdout.readline) == READY
        served = cpu_seconds(server.pid)
        appends = await _change_all(connection, fence, options)
        served = cpu_seconds(server.pid) - served
        answers = [await asyncio.to_thread(worker.communicate, "stop\n") for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
        await connection.close()
    return [codec.decode(answer.encode(), Heard) for answer, _ in answers], appends, served


def _worker(arguments: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def _change_all(connection: Connection, fence: int, options: Namespace) -> list[float]:
    appends: list[float] = []
    for number in range(options.changes):
        event = _change(number % options.models, f"{number}-{monotonic_ns()}")
        sent = monotonic()
        outcome = await append(connection, [event], fence)
        appends.append(monotonic() - sent)
        assert isinstance(outcome, Appended), outcome
        await asyncio.sleep(options.pause)
    await asyncio.sleep(1.0)  # The last one comes to all.
    return appends


def _change(number: int, id_: str) -> Sealed:
    model = ModelName(f"model-{number:03d}")
    endpoints = tuple(
        Endpoint(
            replica=replica_id(model, slot, 1),
            incarnation="1.0",
            address=f"10.0.0.{slot}:17000",
            node=NodeId(f"n{slot:05d}"),
            kind="vllm",
        )
        for slot in range(ENDPOINTS)
    )
    document = EndpointShard(model=model, shard=0, shards=1, endpoints=endpoints)
    subject = subjects.endpoints(model, 0)
    written = Written(subject, "endpoints.published", f"control/{CONTROL}", document)
    return written.seal(EventId(id_), codec.rfc3339(time()))


async def follow(url: str, count: int, models: int) -> None:
    """What one process does: `count` followers, until a line comes from its parent."""
    heard = Heard([], 0.0)
    wanted = [subjects.endpoints(ModelName(f"model-{n:03d}"), 0) for n in range(models)]

    def applied(stored: Stored) -> None:
        found = family_of(stored.subject)
        event, _ = read_document(found, stored.payload)
        number, _, sent = event.id.partition("-")
        if number != "first":
            heard.seconds.append((monotonic_ns() - int(sent)) / 1e9)

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        followers: list[Follower] = []
        for n in range(count):
            connection = Connection(Door(url=url), f"router-{n}")
            await connection.start()
            follower = Follower(connection, [subjects.ALL_ENDPOINTS], lambda: wanted, applied)
            followers.append(follower)
            tasks.append(group.create_task(follower.run()))
        await until(lambda: all(follower.synced for follower in followers))
        sys.stdout.write(READY)
        sys.stdout.flush()
        spent = process_time()
        await asyncio.to_thread(sys.stdin.readline)
        heard.cpu = process_time() - spent
        for task in tasks:
            task.cancel()
    sys.stdout.write(codec.encode(heard).decode())


if __name__ == "__main__":
    configure_logging("follower", "warning")
    asyncio.run(follow(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
