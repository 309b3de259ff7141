"""No room in the stream or on the disk: refused or unanswered, never half written, and over afterwards."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.log import append as module
from services.log import streams
from services.log.api import ApiError, call
from services.log.append import Appended, Sealed, append
from services.log.connect import Connection
from services.log.guarded import Written, write
from services.log.message import Unavailable
from services.log.streams import StreamInfo
from tests.support.events import an_event, lead, whole_log
from tests.support.nats_server import NatsServer
from tests.support.small_disk import SmallDisk, a_small_disk

NODE = "flotilla.log.s.assignment.n{}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with a_small_disk(tmp_path / "disk", 64) as made:
        yield made


@pytest.fixture
def nats(tmp_path: Path, disk: SmallDisk) -> Iterator[NatsServer]:
    """Its store is on the small disk."""
    server = NatsServer(tmp_path / "nats", store=disk.path / "store")
    server.start()
    yield server
    server.kill()


async def change_log(connection: Connection, **config: object) -> None:
    found = (await call(connection, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", found | config, StreamInfo)


# case: JS-03
async def test_a_full_stream_refuses_whole_batches_and_takes_them_once_there_is_room(
    log: Connection,
) -> None:
    fence = await lead(log)
    first = [an_event(NODE.format(number), size=1000) for number in range(10)]
    assert isinstance(await append(log, first, fence), Appended)
    await change_log(log, max_bytes=20_000, discard="new")
    batch = [an_event(NODE.format(number), size=1000) for number in range(30)]
    single = an_event("flotilla.log.s.node.n1.info", size=20_000)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            await append(log, batch, fence)
        assert refused.value.full
        with pytest.raises(ApiError) as refused:
            await write(log, single, 0)
        assert refused.value.full
    assert await streams.head(log) == fence + 10
    await change_log(log, max_bytes=-1)
    assert await append(log, batch, fence) == Appended(fence + 40)
    assert await write(log, single, 0) == Written(fence + 41)


async def taken(log: Connection, batch: list[Sealed], fence: int) -> bool:
    try:
        return isinstance(await append(log, batch, fence, patience_seconds=1.0), Appended)
    except (Unavailable, ApiError):
        return False


# case: JS-03
# spec: L6
async def test_a_full_disk_acknowledges_nothing_that_it_does_not_keep(
    nats: NatsServer, disk: SmallDisk, log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers no write while its disk is full, and after that only once it was restarted."""
    monkeypatch.setattr(module, "ACK_SECONDS", 0.5)
    fence, acked = await lead(log), list[str]()
    disk.fill()
    batch = [an_event(NODE.format(0))]
    while await taken(log, batch, fence):
        acked += [event.id for event in batch]
        batch = [an_event(NODE.format(number), size=50_000) for number in range(10)]
    disk.make_room()
    await asyncio.to_thread(nats.kill)
    await asyncio.to_thread(nats.start)
    await log.wait_connected()
    assert isinstance(await append(log, batch, fence, again=True), Appended)
    acked += [event.id for event in batch]
    assert [event for _, event in (await whole_log(log))[1:]] == acked
