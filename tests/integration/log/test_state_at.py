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
from services.log.message import Unavailable
from services.log.snapshot import read_state
from services.log.state_at import NotKept, state_at
from services.log.stored import Stored
from services.log.streams import LogMissing
from tests.support.nats_server import NatsServer
from tests.support.past import LOG_ID, NEXT_ID, Past, age_away, dump, lived, written

NOW = 1_800_000_000.0


def a_past() -> Past:
    past = Past()
    past.begin()
    return past


async def grow(log: Connection, past: Past, events: int) -> None:
    await written(log, past.pass_by(events, broken=True))


async def shown(log: Connection, sequence: int) -> bytes:
    found = await state_at(log, sequence)
    assert isinstance(found, FleetState), found
    return found.dump()


async def begins(log: Connection, sequence: int) -> tuple[int, float, LogId | None]:
    """From when on it is kept, as a refusal says."""
    found = await state_at(log, sequence)
    assert isinstance(found, NotKept), found
    return found.first, found.first_stamp, found.parent


async def test_without_a_log_there_is_no_past(connection: Connection) -> None:
    with pytest.raises(LogMissing):
        await state_at(connection, 1)


async def test_the_state_at_any_sequence_is_the_fold_up_to_it(log: Connection) -> None:
    past = a_past()
    await grow(log, past, 80)
    history = await lived(log)
    for sequence in (1, 2, 30, 80, 81):
        assert await shown(log, sequence) == dump(history, sequence)
    sequence, stamp, parent = await begins(log, 0)
    assert (sequence, parent) == (1, None)
    assert stamp == pytest.approx(history[0].stamp, abs=1e-5)


async def test_it_is_the_same_from_checkpoints_once_the_beginning_is_gone(log: Connection) -> None:
    past = a_past()
    await grow(log, past, 60)
    first = await write_checkpoint(log, NOW)
    await grow(log, past, 60)
    second = await write_checkpoint(log, NOW + 1)
    await grow(log, past, 60)
    history = await lived(log)
    await age_away(log, first.sequence + 1)
    kept = range(first.sequence, 182)
    for sequence in [*random.Random(7).sample(kept, 20), first.sequence, second.sequence, 181]:
        assert await shown(log, sequence) == dump(history, sequence), sequence
    assert await state_at(log, first.sequence - 1) == NotKept(first.sequence, NOW)


async def test_without_a_checkpoint_only_what_state_holds_now_can_be_shown(log: Connection) -> None:
    past = a_past()
    await written(log, past.pass_by(30))
    history = await lived(log)
    await age_away(log, 20)
    now = (await read_state(log))[1]
    assert await shown(log, 31) == dump(history, 31)
    refused = await state_at(log, 25)
    assert isinstance(refused, NotKept)
    assert refused.first == now
    assert refused.first_stamp == pytest.approx(history[now - 1].stamp, abs=1e-5)


async def test_half_a_checkpoint_is_never_used(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer is killed between two chunks; another leader's is whole."""
    monkeypatch.setattr("services.log.checkpoint.CHUNK_BYTES", 200)
    past = a_past()
    await grow(log, past, 40)
    whole = await write_checkpoint(log, NOW)
    await grow(log, past, 20)
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
    assert await shown(log, 61) == dump(history, 61)


@pytest.mark.parametrize("harm", ["lost", "changed"])
async def test_a_checkpoint_with_a_bad_chunk_is_passed_over(
    log: Connection, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.checkpoint.CHUNK_BYTES", 200)
    past = a_past()
    await grow(log, past, 30)
    await write_checkpoint(log, NOW)
    await grow(log, past, 30)
    bad = await write_checkpoint(log, NOW)
    subject = subjects.checkpoint_chunk(bad.id, 1)
    if harm == "lost":
        await call(log, "STREAM.PURGE.FLOTILLA_CHECKPOINT", {"filter": subject}, dict[str, object])
    else:
        await log.request(subject, b"x" * 200, 5.0)
    with pytest.raises(ValueError, match="chunks"):
        await checkpoint.read(log, bad)
    assert await shown(log, 61) == dump(past.messages, 61)


async def test_a_checkpoint_of_another_log_is_not_used(log: Connection) -> None:
    past = a_past()
    await grow(log, past, 30)
    mine = await write_checkpoint(log, NOW)
    foreign = await checkpoint.write(log, NEXT_ID, 25, codec.rfc3339(NOW), [])
    assert {each.id for each in await checkpoint.complete(log)} == {mine.id, foreign.id}
    assert await shown(log, 28) == dump(past.messages, 28)


async def test_a_log_that_goes_on_from_another_is_shown_across_the_recovery(
    log: Connection,
) -> None:
    past = a_past()
    await grow(log, past, 30)
    parents = await write_checkpoint(log, NOW)
    await grow(log, past, 10)
    past.begin(NEXT_ID, parent=LOG_ID)
    await grow(log, past, 30)
    own = await write_checkpoint(log, NOW)
    history = await lived(log)
    assert min(each.sequence for each in await checkpoint.read(log, own)) == 42
    await age_away(log, parents.sequence + 1)
    for sequence in (parents.sequence, 35, 41, 42, 43, 60, 72):
        assert await shown(log, sequence) == dump(history, sequence), sequence
    await age_away(log, 42)
    assert await shown(log, 50) == dump(history, 50)


async def test_nothing_is_shown_of_before_a_recovery_whose_parent_is_lost(log: Connection) -> None:
    past = a_past()
    await grow(log, past, 30)
    past.begin(NEXT_ID, parent=LOG_ID)
    await grow(log, past, 10)
    history = await lived(log)
    await age_away(log, 32)
    for sequence in (0, 5, 31):
        first, stamp, parent = await begins(log, sequence)
        assert (first, parent) == (32, LOG_ID), sequence
        assert stamp == pytest.approx(history[31].stamp, abs=1e-5)
    assert await shown(log, 32) == dump(history, 32)


async def test_nothing_is_shown_of_a_log_that_cannot_be_reached(
    log: Connection, nats: NatsServer
) -> None:
    await written(log, a_past())
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
