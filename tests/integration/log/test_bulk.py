"""STATE read whole over a link of its own, by every door, and what breaks on the way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.log import bulk, pull, server, streams
from services.log.bulk import scan
from services.log.connect import Connection
from services.log.door import Door
from services.log.message import Unavailable
from services.log.pull import Ended
from services.log.snapshot import read_state
from services.log.stored import Stored
from tests.support.doors import Doors
from tests.support.events import an_event
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy, up_to

SUBJECT = "flotilla.log.s.assignment.n{}"
TLS = Path(__file__).parents[2] / "data" / "tls"
CA, OTHER_CA = TLS / "test-ca.pem", TLS / "other-ca.pem"
SERVER = server.Tls(TLS / "server.pem", TLS / "server.key")


async def filled(log: Connection, documents: int = 20) -> None:
    for number in range(documents):
        subject = SUBJECT.format(number)
        await log.request(subject, an_event(subject, number).payload, 5.0)
    async with asyncio.timeout(30):
        while len((await read_state(log))[0]) < documents:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connected(door: Door) -> AsyncGenerator[Connection]:
    made = Connection(door, "test")
    await made.start()
    await made.wait_connected()
    try:
        yield made
    finally:
        await made.close()


async def test_it_enters_by_the_connections_own_door(tmp_path: Path) -> None:  # spec: S1
    doors = Doors(tmp_path / "doors", "control")
    nats = NatsServer(tmp_path / "nats", users=doors.text, tls=SERVER)
    await asyncio.to_thread(nats.start)
    try:
        door = doors.door(nats.url, "control", CA)
        async with connected(door) as log:
            await streams.create(log)
            await filled(log)
            found, newest = await read_state(log)
            assert (len(found), newest) == (20, 20)
            log.door = replace(door, ca=OTHER_CA)  # From here on, for the links that it makes.
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await read_state(log)
            doors.password_file("control").write_text("another")
            log.door = door
            with pytest.raises(Unavailable, match="Authorization Violation"):
                await read_state(log)
    finally:
        await asyncio.to_thread(nats.kill)


async def test_nothing_is_said_to_a_server_without_tls_where_tls_is_wanted(log: Connection) -> None:
    log.door = replace(log.door, ca=CA)
    with pytest.raises(Unavailable, match="offers no TLS"):
        await read_state(log)


async def test_the_next_server_is_asked_where_one_is_away(log: Connection, proxy: Proxy) -> None:
    await filled(log)
    await proxy.close()
    log.door = replace(log.door, url=f"{proxy.url},{log.url}")
    assert len((await read_state(log))[0]) == 20


async def test_a_link_cut_in_mid_read_is_unavailable(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 5)
    await filled(log)
    cuts: list[asyncio.Task[None]] = []

    def cut_at_the_seventh(frame: object) -> bool:
        if b" 7 " in getattr(frame, "body", b"") and not cuts:
            cuts.append(asyncio.ensure_future(proxy.cut()))
        return bool(cuts)

    proxy.drop = cut_at_the_seventh
    with pytest.raises(Unavailable, match="not read to its end: connection lost"):
        await read_state(lossy)
    await asyncio.gather(*cuts)


@pytest.mark.parametrize("lost", [b" 7 ", b" 20 "], ids=["within", "last"])
async def test_a_lost_message_is_noticed(
    log: Connection, lossy: Connection, proxy: Proxy, lost: bytes
) -> None:
    await filled(log)
    proxy.drop = up_to(1, lambda frame: lost in frame.body.partition(b"\r\n\r\n")[0])
    with pytest.raises(Unavailable, match="a message was lost"):
        await read_state(lossy)
    assert len(proxy.dropped) == 1


async def test_a_server_that_falls_silent_is_unavailable(
    log: Connection, lossy: Connection, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(log)
    monkeypatch.setattr(pull, "SILENCE_SECONDS", 0.3)
    proxy.drop = lambda frame: "$JS.ACK" in frame.reply or frame.body.startswith(b"NATS/1.0 100")
    with pytest.raises(Unavailable, match="not even a beat"):
        await read_state(lossy)


def a_frame(sequence: int, payload: bytes = b'{"a":1}') -> bytes:
    header = f"NATS/1.0\r\nNats-Stream-Source: FLOTILLA_LOG {sequence} f >\r\n\r\n".encode()
    reply = f"$JS.ACK.FLOTILLA_STATE.c.1.{sequence}.{sequence}.1.0"
    line = f"HMSG flotilla.log.s.catalog 1 {reply} {len(header)} {len(header) + len(payload)}\r\n"
    return line.encode() + header + payload + b"\r\n"


def test_frames_are_found_wherever_the_bytes_are_cut() -> None:
    sent = b"PING\r\n" + a_frame(7) + b"+OK\r\n" + a_frame(9, b'{"b":"\r\n"}') + b"PING\r\n"
    expected = [
        Stored(7, "flotilla.log.s.catalog", b'{"a":1}'),
        Stored(9, "flotilla.log.s.catalog", b'{"b":"\r\n"}'),
    ]
    for cut in range(len(sent) + 1):
        first = scan(sent[:cut])
        second = scan(sent[first.used :])
        assert first.documents + second.documents == expected
        assert first.pings + second.pings == 2
        assert first.used + second.used == len(sent)


def test_a_message_that_does_not_say_its_place_in_the_log_ends_the_read() -> None:
    with pytest.raises(Ended, match="does not say where LOG holds it"):
        scan(b"MSG flotilla.log.s.catalog 1 7\r\n" + b'{"a":1}\r\n')


def test_a_refusal_of_the_server_is_heeded() -> None:
    assert scan(b"-ERR 'Permissions Violation'\r\n").refused == "-ERR 'Permissions Violation'"
    header = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    status = f"HMSG _INBOX.x 1 {len(header)} {len(header)}\r\n".encode() + header + b"\r\n"
    assert scan(status).refused == "NATS/1.0 409 Consumer Deleted"
