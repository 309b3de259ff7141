"""A restart over a fleet of some size: the state is whole, and what is decided first is right.

The same fleet, writer and control as `bench/log.py restart`, which measures how long that takes.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from bench.fleet import CONTROL, Fleet, Size
from bench.history import settled, write
from schemas import codec
from schemas.documents import EndpointShard, ReplicaDocument
from schemas.events import Event
from services.control.deciding.pace import is_small
from services.control.deciding.reconcile import decide
from services.control.deciding.silence import Silence
from services.fleet.state import FleetState
from services.log import bulk, streams
from services.log.append import Sealed
from services.log.connect import Connection
from services.log.documents import fold, read_current, read_documents
from services.log.message import Unavailable
from tests.builders import AT, NOW
from tests.support.control import Controls
from tests.support.nats_server import NatsServer
from tests.support.proxy import Frame, Proxy
from tests.support.refold import fold_log, raw_log, read_log
from tests.support.waiting import eventually

SIZE = Size(nodes=320, replicas=1500, models=10)
HISTORY = 3000


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(SIZE, AT)


def lived(fleet: Fleet) -> Iterator[Sealed]:
    """Its documents, some history, and the end of one replica."""
    yield from fleet.sealed(fleet.documents.values())
    yield from fleet.sealed(islice(fleet.history(), HISTORY))
    yield from fleet.sealed(fleet.ending())


async def test_control_finds_the_fleet_as_it_was_and_decides_what_is_missing(
    nats: NatsServer, connection: Connection, fleet: Fleet, tmp_path: Path
) -> None:  # spec: L3 L4 R1
    await write(connection, lived(fleet), begin=True)
    await settled(connection)
    head = await streams.head(connection)
    documents, state = await read_documents(connection)
    assert len(documents) < head  # Of every subject the last one,
    assert state.dump() == await fold_log(nats.url, head)  # and yet the same as all of them.
    assert (await read_current(connection)).dump() == state.dump()
    assert not is_small(state)

    controls = Controls(nats, tmp_path)
    controls.start(CONTROL)
    try:
        decided = await eventually(lambda: first_batch(nats, connection, head), "it decides")
    finally:
        controls.kill()
    expected = decide(state, fleet.catalog.models, Silence(hearing_seconds=0.0), NOW).drafts
    assert [(event.type, subject) for subject, event in decided] == [
        (draft.type, draft.subject) for draft in expected
    ]
    assert [event.type for _, event in decided] == [
        "endpoints.published",
        "replica.placed",
        "assignment.changed",
        "assignment.changed",
    ]
    published = codec.decode(decided[0][1].data, EndpointShard)
    placed = codec.decode(decided[1][1].data, ReplicaDocument)
    assert placed.id == "model-000-0-2"  # The slot of the one that has ended, and another id.
    assert {endpoint.replica for endpoint in published.endpoints} == {
        f"model-000-{slot}-1" for slot in range(1, SIZE.replicas // SIZE.models)
    }


async def first_batch(
    nats: NatsServer, connection: Connection, before: int
) -> list[tuple[str, Event]] | None:
    """What control wrote after its claim, up to its first orders to nodes; None: nothing yet."""
    events = await read_log(nats.url, await streams.head(connection))
    written = [(subject, event) for sequence, subject, event in events if sequence > before + 1]
    return written[:4] if len(written) >= 4 else None


async def test_state_is_whole_while_it_is_written_to(
    nats: NatsServer, connection: Connection, fleet: Fleet
) -> None:  # spec: L4
    await write(connection, lived(fleet), begin=True)
    more = fleet.sealed(islice(fleet.history(seed=8), 2 * HISTORY))
    writing = asyncio.ensure_future(write(connection, more))
    try:
        found = [await read_documents(connection) for _ in range(4)]
    finally:
        await writing
    truth = await raw_log(nats.url, await streams.head(connection))
    whole = FleetState()
    await fold(whole, truth)
    for documents, state in found:
        newest = max(stored.sequence for stored in documents)
        assert state.sequence == newest
        await fold(state, [stored for stored in truth if stored.sequence > newest])
        assert state.dump() == whole.dump()


async def test_what_a_bad_document_stood_on_is_part_of_the_state(
    nats: NatsServer, connection: Connection, fleet: Fleet
) -> None:  # spec: L5
    await write(connection, lived(fleet), begin=True)
    shard = fleet.undone_ending()[1]
    await connection.request(shard.subject, b"{garbage", 5.0)
    await settled(connection)
    state = await read_current(connection)
    assert state.dump() == await fold_log(nats.url, await streams.head(connection))
    assert state.unreadable.keys() == {shard.subject}


async def test_a_large_state_that_is_cut_off_is_no_state(
    connection: Connection,
    lossy: Connection,
    proxy: Proxy,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 500)
    await write(connection, lived(fleet), begin=True)
    await settled(connection)
    passed: list[Frame] = []
    cuts: list[asyncio.Task[None]] = []

    def cut_after_a_thousand(frame: Frame) -> bool:
        passed.append(frame)
        if len(passed) == 1000:
            cuts.append(asyncio.ensure_future(proxy.cut()))
        return False

    proxy.drop = cut_after_a_thousand
    with pytest.raises(Unavailable, match="not read to its end"):
        await read_documents(lossy)
    assert len(passed) >= 1000
    await asyncio.gather(*cuts)
