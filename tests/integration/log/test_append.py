"""Batches that stand or fall as a whole, once each, and never after another control has claimed."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from schemas import subjects
from services.log import append as module
from services.log.api import ApiError, call
from services.log.append import Appended, Fenced, append, claim
from services.log.connect import Connection
from services.log.guarded import MAX_EVENT_BYTES
from services.log.message import Unavailable
from services.log.snapshot import get
from services.log.streams import StreamInfo
from tests.support.events import an_event, lead, whole_log
from tests.support.nats_server import NatsServer
from tests.support.proxy import Frame, Proxy, up_to

NODE = "flotilla.log.s.assignment.n{}"


async def test_a_batch_lands_whole_and_in_order(log: Connection) -> None:
    fence = await lead(log)
    events = [an_event(NODE.format(number % 7)) for number in range(500)]
    assert await append(log, events, fence) == Appended(fence + 500)
    assert (await whole_log(log))[1:] == [(event.subject, event.id) for event in events]


async def test_a_batch_of_one_is_guarded_too(log: Connection) -> None:
    fence = await lead(log)
    assert await append(log, [an_event(NODE.format(1))], fence) == Appended(fence + 1)
    assert isinstance(await append(log, [an_event(NODE.format(1))], fence + 1), Fenced)


async def test_nothing_of_a_superseded_leader_is_written(log: Connection) -> None:
    # spec: L7
    old = await lead(log)
    new = await lead(log, old)
    refused = await append(log, [an_event(NODE.format(1)), an_event(NODE.format(2))], old)
    assert isinstance(refused, Fenced)
    assert len(await whole_log(log)) == 2
    assert await append(log, [an_event(NODE.format(1))], new) == Appended(new + 1)


async def test_one_of_many_claims_wins(log: Connection) -> None:
    # spec: L7
    claims = [claim(log, an_event(subjects.CONTROL_EPOCH), 0) for _ in range(20)]
    fences = await asyncio.gather(*claims)
    assert [fence for fence in fences if fence is not None] == [1]
    assert await claim(log, an_event(subjects.CONTROL_EPOCH), 0) is None


async def test_a_lost_ack_of_a_batch_lands_it_once(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # spec: L8
    monkeypatch.setattr(module, "ACK_SECONDS", 0.3)
    fence = await lead(log)
    proxy.drop = acks_of_batches(1)
    events = [an_event(NODE.format(number)) for number in range(10)]
    assert await append(lossy, events, fence) == Appended(fence + 10)
    assert len(proxy.dropped) == 1
    assert (await whole_log(log))[1:] == [(event.subject, event.id) for event in events]


async def test_a_batch_sent_again_without_asking_is_refused_as_known(log: Connection) -> None:
    # spec: L8
    fence = await lead(log)
    events = [an_event(NODE.format(number)) for number in range(3)]
    first = await append(log, events, fence)
    assert await append(log, events, fence) == first
    assert len(await whole_log(log)) == 4


async def test_a_batch_that_landed_long_ago_is_recognised(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log itself is asked before anything goes again: the server forgets ids after a while."""
    monkeypatch.setattr(module, "ACK_SECONDS", 0.5)
    info = await call(log, f"STREAM.INFO.{subjects.LOG}", None, StreamInfo)
    forgetful = info.config | {"duplicate_window": 100_000_000}
    await call(log, f"STREAM.UPDATE.{subjects.LOG}", forgetful, StreamInfo)
    fence = await lead(log)
    proxy.drop = acks_of_batches(1)
    events = [an_event(NODE.format(number)) for number in range(3)]
    assert await append(lossy, events, fence) == Appended(fence + 3)
    assert len(proxy.dropped) == 1
    assert (await whole_log(log))[1:] == [(event.subject, event.id) for event in events]


async def test_a_lost_ack_of_a_claim_is_still_our_claim(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.log.guarded.ACK_SECONDS", 0.3)
    proxy.drop = up_to(1, lambda frame: b'"seq":' in frame.body)
    assert await claim(lossy, an_event(subjects.CONTROL_EPOCH), 0) == 1
    assert len(proxy.dropped) == 1
    assert len(await whole_log(log)) == 1


async def test_lands_once_over_kills_of_the_server(nats: NatsServer, log: Connection) -> None:
    # spec: L6
    fence = await lead(log)
    batches = [[an_event(NODE.format(n), size=2000) for n in range(100)] for _ in range(12)]

    async def write() -> None:
        for batch in batches:
            assert isinstance(await append(log, batch, fence), Appended)

    writing = asyncio.ensure_future(write())
    for delay in (0.02, 0.05, 0.08):
        await asyncio.sleep(delay)
        nats.kill()
        nats.start()
        await log.wait_connected()
    await writing
    await log.wait_connected()
    assert (await whole_log(log))[1:] == [(e.subject, e.id) for batch in batches for e in batch]


async def test_says_so_when_nats_stays_away(nats: NatsServer, log: Connection) -> None:
    fence = await lead(log)
    nats.kill()
    with pytest.raises(Unavailable, match="not known"):
        await append(log, [an_event(NODE.format(1))], fence, patience_seconds=0.2)
    with pytest.raises(Unavailable, match="not known"):
        await claim(log, an_event(subjects.CONTROL_EPOCH), fence, patience_seconds=0.2)


async def test_a_part_lost_on_the_way_drops_the_batch_and_it_goes_again(
    log: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = await lead(log)
    events = [an_event(NODE.format(number)) for number in range(5)]
    publish, lost = log.publish, [events[2].subject]

    async def lose_one(subject: str, payload: bytes, headers: Mapping[str, str]) -> bool:
        if subject in lost:
            lost.remove(subject)
            return True
        return await publish(subject, payload, headers=headers)

    monkeypatch.setattr(log, "publish", lose_one)
    assert await append(log, events, fence) == Appended(fence + 5)
    assert not lost
    assert (await whole_log(log))[1:] == [(event.subject, event.id) for event in events]


async def test_the_largest_event_fits_and_a_larger_one_is_refused_here(log: Connection) -> None:
    fence = await lead(log)
    event = an_event(NODE.format(1))
    largest = an_event(NODE.format(1), size=MAX_EVENT_BYTES - len(event.payload) - 2)
    assert isinstance(await append(log, [largest, an_event(NODE.format(2))], fence), Appended)
    assert (await get(log, largest.subject)) is not None
    with pytest.raises(ValueError, match="bytes"):
        await append(log, [an_event(NODE.format(1), size=MAX_EVENT_BYTES)], fence)
    with pytest.raises(ValueError, match="1 to 500"):
        await append(log, [], fence)
    with pytest.raises(ValueError, match="not a subject of the log"):
        await append(log, [an_event("elsewhere.n1")], fence)


async def test_any_other_refusal_is_an_error(log: Connection, connection: Connection) -> None:
    fence = await lead(log)
    await log.request("$JS.API.STREAM.DELETE.FLOTILLA_LOG", b"", 5.0)
    plain = b'{"name":"FLOTILLA_LOG","subjects":["flotilla.log.>"],"storage":"file"}'
    await log.request("$JS.API.STREAM.CREATE.FLOTILLA_LOG", plain, 5.0)
    with pytest.raises(ApiError, match="atomic publish"):
        await append(log, [an_event(NODE.format(1))], fence)


def acks_of_batches(count: int) -> Callable[[Frame], bool]:
    return up_to(count, lambda frame: b'"batch":' in frame.body)


async def test_what_landed_and_was_written_over_by_the_next_leader_is_known_to_have_landed(
    log: Connection,
) -> None:
    # spec: L8
    old = await lead(log)
    events = [an_event(NODE.format(number)) for number in range(3)]
    landed = await append(log, events, old)
    new = await lead(log, old)
    await append(log, [an_event(NODE.format(2))], new)
    assert await append(log, events, old, again=True) == landed
    never = [an_event(NODE.format(number)) for number in range(3)]
    assert isinstance(await append(log, never, old, again=True), Fenced)


def in_process(frame: Frame) -> bytes | None:
    """What a cluster says of an event that was sent before and is on its way into the stream."""
    told = b'NATS/1.0\r\n\r\n{"error":{"code":409,"err_code":10158,"description":"in process"},"seq":0}'
    return told if b'"seq":' in frame.body else None


async def test_an_event_that_is_on_its_way_is_no_refused_one(
    log: Connection, lossy: Connection, proxy: Proxy
) -> None:
    # spec: L8
    fence = await lead(log)
    proxy.change = once(in_process)
    events = [an_event(NODE.format(number)) for number in range(2)]
    assert await append(lossy, events, fence) == Appended(fence + 2)
    proxy.change = once(in_process)
    assert await claim(lossy, an_event(subjects.CONTROL_EPOCH), fence) == fence + 3


def once(change: Callable[[Frame], bytes | None]) -> Callable[[Frame], bytes | None]:
    changed: list[bytes] = []

    def first(frame: Frame) -> bytes | None:
        if changed or (made := change(frame)) is None:
            return None
        changed.append(made)
        return made

    return first
