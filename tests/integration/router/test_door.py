"""The client-facing port as hostile and old clients see it: raw bytes in, raw bytes out."""

import asyncio
import json

import pytest

from services.router import api
from tests.support.router import Door, a_door
from tests.support.upstream import CHAT, DONE, Received, Upstream, Wire, delta

BODY = b'{"model":"tiny","messages":[]}'
STREAM = b'{"model":"tiny","messages":[],"stream":true}'


def a_post(
    body: bytes,
    *headers: bytes,
    version: bytes = b"1.1",
    path: bytes = b"/v1/chat/completions",
    length: bool = True,
) -> bytes:
    lines = [b"POST %b HTTP/%b" % (path, version), b"Host: x", *headers]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", b""]) + body


async def told(door: Door, *sent: bytes) -> bytes:
    """Everything that comes until the door closes the connection."""
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"".join(sent))
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


def code_of(answer: bytes) -> object:
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]


CHUNKED = b"5\r\n" + BODY[:5] + b"\r\n" + b"%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\n\r\n"
CLOSE = b"Connection: close"


async def test_a_chunked_body_is_read_whole() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(
            door, a_post(CHUNKED, b"Transfer-Encoding: chunked", CLOSE, length=False)
        )
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert engine.received[0].body == BODY


@pytest.mark.parametrize(
    "sent",
    [
        a_post(CHUNKED, b"Transfer-Encoding: chunked"),
        a_post(CHUNKED, b"Transfer-Encoding: xchunked", length=False),
        a_post(b"zz\r\nabc\r\n", b"Transfer-Encoding: chunked", length=False),
        a_post(BODY, b"Content-Length: 3"),
        a_post(BODY, b"Content-Length: -3", length=False),
        a_post(BODY, b"Content-Length: 99999999999999999999999", length=False),
        a_post(BODY, *(b"X-%d: y" % number for number in range(1000))),
        a_post(BODY, b"X-Long: " + b"a" * 100_000),
        a_post(BODY, b"X-Null: a\x00b"),
        a_post(BODY, b"X-Bare: a\rX-B: b"),
        a_post(BODY, b"X-Bare: a\nX-B: b"),
        a_post(BODY, b"X-Folded: a", b" b"),
        a_post(BODY, b"Content-Encoding: br"),
        a_post(BODY, version=b"3.0"),
        a_post(BODY, path=b"/v1/chat/completions?\xc3\xa9"),
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_proper_http_is_refused_in_the_apis_shape(
    sent: bytes, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """# spec: T1"""
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, sent)
        assert answer.split(b" ", 2)[1] == b"400"
        assert b"Server: flotilla\r\n" in answer
        assert b"aiohttp" not in answer
        assert code_of(answer) == "invalid_request"
        assert engine.received == []
    assert "Traceback" not in capsys.readouterr().out
    assert caplog.records == []


async def test_a_body_that_cannot_be_unpacked_makes_no_noise(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(b"\x1f\x8bgarbage", b"Content-Encoding: gzip", CLOSE))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert code_of(answer) == "invalid_request"
    assert "Traceback" not in capsys.readouterr().out
    assert caplog.records == []


async def test_a_stream_to_an_old_client_ends_with_its_connection() -> None:
    """# spec: T1"""
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(STREAM, b"Connection: keep-alive", version=b"1.0"))
        head, _, content = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 ")
        assert b"Transfer-Encoding" not in head
        assert content == delta() * 3 + DONE


async def test_an_old_client_is_told_nothing_in_between() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(BODY, b"Expect: 100-continue", version=b"1.0"))
        assert answer.startswith(b"HTTP/1.0 200 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == CHAT


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/chat/completions", b"/metrics"])
async def test_an_answer_to_head_has_no_body(path: bytes) -> None:
    async with a_door() as door:
        head = b"HEAD %b HTTP/1.1\r\nHost: x\r\n" % path
        answer = await told(door, head + b"\r\n", head + CLOSE + b"\r\n\r\n")
        first, second, rest = answer.split(b"\r\n\r\n")
        assert rest == b""
        for each in (first, second):
            assert each.split(b" ", 2)[1] in (b"404", b"405")


async def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(BODY), a_post(b"{"), a_post(STREAM, CLOSE))
        found = [part.split(b" ", 1)[0] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert found == [b"200", b"400", b"200"]
        assert answer.endswith(b"0\r\n\r\n")


async def test_a_name_without_end_is_not_told_back() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(b'{"model":"%b"}' % (b"a" * 100_000), CLOSE))
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert len(answer) < 1000


async def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BODY_SILENCE_SECONDS", 0.2)
    async with Upstream() as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(b'{"m', b"Content-Length: 1000", length=False))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert code_of(answer) == "request_timeout"
        assert engine.received == []


@pytest.mark.parametrize("status", [429, 500])
async def test_a_refusal_too_long_to_keep_is_never_shown_in_part(status: int) -> None:
    """# spec: T5"""

    async def goes_on(wire: Wire, received: Received) -> None:
        await wire.answer(status, b"e" * 1_000_000)

    async with Upstream(goes_on) as engine, a_door(engine.address) as door:
        answer = await told(door, a_post(BODY, CLOSE))
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert code_of(answer) == "upstream_refused"
        assert (b"retry-after: 5" in answer) == (status == 429)


async def test_an_empty_name_of_a_request_counts_as_none() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        await told(door, a_post(BODY, b"X-Request-Id: ", CLOSE))
        assert (engine.received[0].header("X-Request-Id") or "").startswith("req-")
