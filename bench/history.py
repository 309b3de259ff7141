"""Writes an imagined fleet and its history into a log, the way control writes: guarded batches of 500.

Written logs are kept in a folder, each as the store of a stopped nats-server, one a length of history.
"""

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from time import time

from bench.fleet import Fleet, Size, epoch
from schemas import codec, subjects
from services.log import streams
from services.log.append import Appended, Sealed, append, claim
from services.log.connect import Connection
from services.log.door import Door
from services.log.snapshot import get_from_log
from tests.support.nats_server import NatsServer

BATCH = 500
POLL_SECONDS = 0.1
_WHOLE = "whole"
"""A file in the folder of a log that was written to its end."""


async def kept_logs(folder: Path, size: Size, lengths: Sequence[int]) -> dict[int, Path]:
    """For each length of history, in events beyond the fleet's documents, the folder of a server."""
    name = f"{size.nodes}-{size.replicas}-{size.models}"
    kept = {length: folder / f"{name}-{length}" for length in sorted(lengths)}
    if not all((path / _WHOLE).exists() for path in kept.values()):
        await _write(folder / f"{name}-growing", size, kept)
    return kept


async def _write(growing: Path, size: Size, kept: dict[int, Path]) -> None:
    """One log that grows, copied at each length."""
    shutil.rmtree(growing, ignore_errors=True)
    fleet = Fleet(size, codec.rfc3339(time()))
    past, written = fleet.history(), 0
    await _extend(growing, fleet.sealed(fleet.documents.values()), begin=True)
    for length, path in kept.items():
        more = islice(past, length - written)
        await _extend(growing, [*fleet.sealed(more), *fleet.sealed(fleet.ending())])
        written = length
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(growing, path)
        (path / _WHOLE).touch()
        await _extend(growing, fleet.sealed(fleet.undone_ending()))
    shutil.rmtree(growing)


async def _extend(store: Path, events: Iterable[Sealed], *, begin: bool = False) -> None:
    """With a server of its own, which is stopped once STATE has it all."""
    server = NatsServer(store, sync="2m")  # Nobody relies on it before it is whole.
    server.start()
    connection = Connection(Door(url=server.url), "bench")
    await connection.start()
    await connection.wait_connected()
    try:
        await write(connection, events, begin=begin)
        await settled(connection)
    finally:
        await connection.close()
        server.stop()


async def write(connection: Connection, events: Iterable[Sealed], *, begin: bool = False) -> None:
    """With `begin`, into a log that is made first."""
    if begin:
        await streams.create(connection)
        await claim(connection, epoch(), 0)
    fence = await fence_of(connection)
    left = iter(events)
    while batch := list(islice(left, BATCH)):
        outcome = await append(connection, batch, fence)
        assert isinstance(outcome, Appended), outcome


async def fence_of(connection: Connection) -> int:
    """Where the epoch document stands."""
    held = await get_from_log(connection, subjects.CONTROL_EPOCH)
    if held is None:
        raise AssertionError("nobody has claimed")
    return held.sequence


async def settled(connection: Connection) -> None:
    """Returns once STATE holds all that LOG does: its newest document is LOG's newest.

    What STATE says of its source does not tell it: the lag is 0 until it has heard of something new.
    """
    head = await streams.head(connection)
    wanted = await _newest(connection, subjects.LOG, "Nats-Sequence")
    while True:
        if await _newest(connection, subjects.STATE, "Nats-Stream-Source") == wanted:
            break
        await asyncio.sleep(POLL_SECONDS)
    if await streams.head(connection) != head:
        raise AssertionError("somebody else writes")


async def _newest(connection: Connection, stream: str, header: str) -> str:
    """LOG's sequence of the newest document in a stream, empty if it has none."""
    asked = codec.encode({"last_by_subj": f"{subjects.STATE_ROOT}>"})
    found = await connection.request(f"$JS.API.DIRECT.GET.{stream}", asked, 5.0)
    told = found.headers.get(header, "")
    return told.split()[1] if stream == subjects.STATE and told else told
