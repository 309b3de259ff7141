"""What an acknowledged write survives: the server is seen to sync it before it says that it is taken.

No power is cut here. What is shown is the order of the server's system calls: the event is written to
LOG's file, that file is synced, and only then does the acknowledgement go out.
"""

import asyncio
import re
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas import subjects
from services.log import streams
from services.log.append import append, claim
from services.log.connect import Connection
from services.log.guarded import Sealed, Written, write
from tests.support.events import an_event
from tests.support.nats_server import NatsServer

SUBJECT = "flotilla.log.s.assignment.n{}"
CALLS = "write,writev,pwrite64,fsync,fdatasync"
_FILE = r"<[^>]*/FLOTILLA_LOG/msgs/[^>]*>"


@asynccontextmanager
async def traced(nats: NatsServer, file: Path) -> AsyncGenerator[None]:
    """Its system calls go to `file`, with the paths of files, until the block ends."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: nobody sees when the server syncs")
    process = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-y", "-s", "2000", "-e", f"trace={CALLS}"),
        *("-o", str(file), "-p", str(nats.pid)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    told = (await process.stderr.readline()).decode()
    if "attached" not in told:
        await process.wait()
        pytest.skip(f"strace may not look at another process here: {told.strip()}")
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def steps(trace: str, event: Sealed, inbox: str) -> Iterator[str]:
    """In the order in which they happened: `stored` in LOG's file, `synced`, `acknowledged`."""
    syncing: set[str] = set()
    for line in trace.splitlines():
        thread, _, call = line.partition(" ")
        if re.search(rf"write(64|v)?\(\d+{_FILE}", call) and event.id in call:
            yield "stored"
        elif re.search(rf"f(data)?sync\(\d+{_FILE}", call):
            if "= 0" in call:
                yield "synced"
            syncing.add(thread)
        elif "sync resumed>" in call and "= 0" in call and thread in syncing:
            yield "synced"
        elif inbox in call and r"\"stream\":\"FLOTILLA_LOG\"" in call:
            yield "acknowledged"


async def one_write(nats: NatsServer, folder: Path, batch: int) -> list[str]:
    """The steps of the last event of a write of `batch` events."""
    made = Connection(nats.url, "test")
    await made.start()
    await made.wait_connected()
    try:
        await streams.create(made)
        fence = await claim(made, an_event(subjects.CONTROL_EPOCH), 0)
        assert fence is not None
        events = [an_event(SUBJECT.format(number)) for number in range(batch)]
        async with traced(nats, folder / "trace"):
            if batch == 1:
                assert isinstance(await write(made, events[0], 0), Written)
            else:
                await append(made, events, fence)
    finally:
        await made.close()
    return list(steps((folder / "trace").read_text(), events[-1], "MSG _INBOX."))


@pytest.mark.parametrize("batch", [1, 10], ids=["an agent's write", "a batch of control"])
async def test_a_write_is_on_disk_before_it_is_acknowledged(
    nats: NatsServer, tmp_path: Path, batch: int
) -> None:
    done = await one_write(nats, tmp_path, batch)
    assert "stored" in done
    assert "acknowledged" in done
    assert "synced" in done[done.index("stored") : done.index("acknowledged")]


async def test_without_sync_always_nothing_is_synced_in_between(tmp_path: Path) -> None:
    """So the test above would see it."""
    nats = NatsServer(tmp_path / "nats", sync="2m")
    await asyncio.to_thread(nats.start)
    try:
        done = await one_write(nats, tmp_path, 1)
    finally:
        nats.kill()
    assert done[: done.index("acknowledged") + 1] == ["stored", "acknowledged"]
