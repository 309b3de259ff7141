"""The fleet as it was: from a checkpoint or from the beginning, byte for byte as it was lived."""

import asyncio
import random

import pytest

from schemas import codec, subjects
from schemas.ids import LogId
from services.control.checkpoint import write as write_checkpoint
from services.fleet.state import FleetState
from services.log import checkpoint
from services.log.api import call
from services.log.connect import Connection
from services.log.history import bounds, read_range
from services.log.message import Unavailable
from services.log.snapshot import read_state
from services.log.state_at import NotKept, state_at
from services.log.stored import Stored
from services.log.streams import LogMissing, StreamInfo
from tests.builders import a_genesis, a_node, a_verdict, an_event
from tests.support.nats_server import NatsServer

LOG_ID = LogId("1234567890abcdef1234567890abcdef")
NEXT_ID = LogId("abcdef1234567890abcdef1234567890")
NOW = 1_800_000_000.0


async def put(log: Connection, subject: str, payload: bytes) -> None:
    await log.request(subject, payload, 5.0)


async def grow(log: Connection, events: int, log_id: LogId = LOG_ID) -> None:
    """Documents that replace one another, happenings, and every twentieth is unreadable."""
    for number in range(events):
        node = f"node-{number % 7}"
        info, verdict = a_node(node), a_verdict(node)
        subject = subjects.node_info(info.node)
        payload = an_event(info, id_=f"event-{number}", log=log_id)
        if number % 3 == 0:
            subject = subjects.node_verdict(verdict.node)
            payload = an_event(verdict, id_=f"event-{number}", log=log_id)
        elif number % 3 == 1:
            subject = subjects.command("cordon")
        await put(log, subject, b'{"id": broken' if number % 20 == 0 else payload)
    head = (await bounds(log)).last
    async with asyncio.timeout(30):
        while (await read_state(log))[1] < head - 1:  # noqa: ASYNC110 - the last may be a happening.
            await asyncio.sleep(0.01)


async def begin(log: Connection, log_id: LogId = LOG_ID, parent: LogId | None = None) -> None:
    await put(log, subjects.GENESIS, an_event(a_genesis(log_id, parent), log=log_id))


async def lived(log: Connection) -> list[Stored]:
    return [stored async for batch in read_range(log, 1) for stored in batch]


def dump_at(history: list[Stored], sequence: int) -> bytes:
    state = FleetState()
    for stored in history:
        if stored.sequence <= sequence:
            state.apply(stored.sequence, stored.subject, stored.payload)
    return state.dump()


async def age_away(log: Connection, below: int) -> None:
    """As LOG's age would have it: its first messages are gone, its sequences are not."""
    config = (await call(log, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
    left = (await bounds(log)).last - below + 1
    await call(log, "STREAM.UPDATE.FLOTILLA_LOG", config | {"max_msgs": left}, StreamInfo)


async def shown(log: Connection, sequence: int) -> bytes:
    found = await state_at(log, sequence)
    assert isinstance(found, FleetState), found
    return found.dump()


async def test_without_a_log_there_is_no_past(connection: Connection) -> None:
    with pytest.raises(LogMissing):
        await state_at(connection, 1)


async def test_the_state_at_any_sequence_is_the_fold_up_to_it(log: Connection) -> None:
    await begin(log)
    await grow(log, 80)
    history = await lived(log)
    for sequence in (0, 1, 2, 30, 80, 81):
        assert await shown(log, sequence) == dump_at(history, sequence)


async def test_it_is_the_same_from_checkpoints_once_the_beginning_is_gone(log: Connection) -> None:
    await begin(log)
    await grow(log, 60)
    first = await write_checkpoint(log, NOW)
    await grow(log, 60)
    second = await write_checkpoint(log, NOW + 1)
    await grow(log, 60)
    history = await lived(log)
    await age_away(log, first.sequence + 1)
    kept = range(first.sequence, 182)
    for sequence in [*random.Random(7).sample(kept, 20), first.sequence, second.sequence, 181]:
        assert await shown(log, sequence) == dump_at(history, sequence), sequence
    assert await state_at(log, first.sequence - 1) == NotKept(first.sequence, NOW)


async def test_without_a_checkpoint_only_what_state_holds_now_can_be_shown(log: Connection) -> None:
    await begin(log)
    await grow(log, 30)
    history = await lived(log)
    await age_away(log, 20)
    now = (await read_state(log))[1]
    assert await shown(log, 31) == dump_at(history, 31)
    refused = await state_at(log, 25)
    assert isinstance(refused, NotKept)
    assert refused.first == now
    assert refused.first_stamp == pytest.approx(history[now - 1].stamp, abs=1e-5)


async def test_half_a_checkpoint_is_never_used(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer is killed between two chunks; another leader's is whole."""
    monkeypatch.setattr("services.log.checkpoint.CHUNK_BYTES", 200)
    await begin(log)
    await grow(log, 40)
    whole = await write_checkpoint(log, NOW)
    await grow(log, 20)
    history = await lived(log)
    chunks = 0

    async def until_killed(connection: Connection, subject: str, payload: bytes) -> None:
        nonlocal chunks
        if chunks == 2:
            raise asyncio.CancelledError
        chunks += 1
        await log.request(subject, payload, 5.0)

    with monkeypatch.context() as dying:
        dying.setattr("services.log.checkpoint._store", until_killed)
        with pytest.raises(asyncio.CancelledError):
            await write_checkpoint(log, NOW)
    assert await checkpoint.complete(log) == [whole]
    assert await shown(log, 61) == dump_at(history, 61)


@pytest.mark.parametrize("harm", ["lost", "changed"])
async def test_a_checkpoint_with_a_bad_chunk_is_passed_over(
    log: Connection, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.checkpoint.CHUNK_BYTES", 200)
    await begin(log)
    await grow(log, 30)
    await write_checkpoint(log, NOW)
    await grow(log, 30)
    bad = await write_checkpoint(log, NOW)
    subject = subjects.checkpoint_chunk(bad.id, 1)
    if harm == "lost":
        await call(log, "STREAM.PURGE.FLOTILLA_CHECKPOINT", {"filter": subject}, dict[str, object])
    else:
        await put(log, subject, b"x" * 200)
    with pytest.raises(ValueError, match="chunks"):
        await checkpoint.read(log, bad)
    assert await shown(log, 61) == dump_at(await lived(log), 61)


async def test_a_checkpoint_of_another_log_is_not_used(log: Connection) -> None:
    await begin(log)
    await grow(log, 30)
    mine = await write_checkpoint(log, NOW)
    foreign = await checkpoint.write(log, NEXT_ID, 25, codec.rfc3339(NOW), [])
    assert {each.id for each in await checkpoint.complete(log)} == {mine.id, foreign.id}
    assert await shown(log, 28) == dump_at(await lived(log), 28)


async def test_a_log_that_goes_on_from_another_is_shown_across_the_recovery(
    log: Connection,
) -> None:
    await begin(log)
    await grow(log, 30)
    parents = await write_checkpoint(log, NOW)
    await grow(log, 10)
    await begin(log, NEXT_ID, parent=LOG_ID)
    await grow(log, 30, NEXT_ID)
    own = await write_checkpoint(log, NOW)
    history = await lived(log)
    assert min(each.sequence for each in await checkpoint.read(log, own)) == 42
    await age_away(log, parents.sequence + 1)
    for sequence in (parents.sequence, 35, 41, 42, 43, 60, 72):
        assert await shown(log, sequence) == dump_at(history, sequence), sequence
    await age_away(log, 42)
    assert await shown(log, 50) == dump_at(history, 50)


async def test_nothing_is_shown_of_a_log_that_cannot_be_reached(
    log: Connection, nats: NatsServer
) -> None:
    await begin(log)
    nats.kill()
    with pytest.raises(Unavailable):
        await state_at(log, 1)


def test_documents_are_packed_verbatim() -> None:
    documents = [Stored(n, f"flotilla.log.s.{n}", bytes([n, 0, 255]) * n) for n in range(200)]
    chunks = checkpoint.pack(documents)
    assert list(checkpoint.unpack(b"".join(chunks))) == documents
    with pytest.raises(ValueError, match="no documents"):
        list(checkpoint.unpack(b"".join(chunks)[:-9]))


def test_a_chunk_fits_its_stream() -> None:
    noise = random.Random(1).randbytes(1_200_000)
    chunks = checkpoint.pack([Stored(1, "flotilla.log.s.a", noise)])
    assert [len(chunk) <= 512 * 1024 for chunk in chunks] == [True] * 3
