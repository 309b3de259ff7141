"""What clients see when engines misbehave, through the real door and real sockets."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from services.router.breaker import FAILURES, OPEN_SECONDS
from services.router.proxy import Timing
from tests.support.router import Door, a_catalog, a_door
from tests.support.upstream import CHAT, DONE, Received, Upstream, Wire, chats, delta, upstreams


async def events_of(response: aiohttp.ClientResponse) -> list[object]:
    """The `data` of each event, decoded; `[DONE]` as it stands."""
    found: list[object] = []
    async for line in response.content:
        if line.startswith(b"data: "):
            text = line[6:].strip()
            found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
    return found


def error_of(event: object) -> dict[str, object]:
    return msgspec.convert(event, dict[str, dict[str, object]])["error"]


async def test_an_answer_and_a_stream_pass_unchanged() -> None:
    """# spec: T1"""
    async with Upstream() as engine, a_door(engine.address) as door:
        async with door.post() as response:
            assert response.status == 200
            assert await response.json() == CHAT
            assert response.headers["Server"] == "flotilla"
        async with door.post(stream=True) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            assert await response.read() == delta() * 3 + DONE
        assert engine.connections == 1


async def test_keep_alive_dials_once_for_many_requests() -> None:
    async with Upstream() as engine, a_door(engine.address) as door:
        for number in range(20):
            async with door.post(stream=number % 2 == 1) as response:
                await response.read()
        assert len(engine.received) == 20
        assert engine.connections == 1


async def test_the_body_passes_byte_for_byte() -> None:
    """# spec: T1"""
    body = b'{ "model" : "tiny",\n "messages":[], "x": "\\u00e9\xc3\xa9" }'
    async with Upstream() as engine, a_door(engine.address) as door:
        async with door.client.post("/v1/chat/completions?a=b%20c", data=body) as response:
            assert response.status == 200
        assert engine.received[0].body == body
        assert engine.received[0].head.startswith(b"POST /v1/chat/completions?a=b%20c HTTP/1.1\r\n")


async def test_an_alias_changes_the_model_and_nothing_else() -> None:
    """# spec: C10"""
    body = b'{"x":{"model":"small"}, "model" :  "small","y":["model","small"]}'
    async with Upstream() as engine, a_door(engine.address) as door:
        async with door.client.post("/v1/embeddings", data=body) as response:
            assert response.status == 200
        assert engine.received[0].body == body.replace(b' :  "small"', b' :  "tiny"')


async def test_what_is_the_clients_or_the_connections_stays_behind() -> None:
    sent = {
        "Authorization": "Bearer secret",
        "Cookie": "a=b",
        "X-Forwarded-For": "10.0.0.1",
        "X-Flotilla-Anything": "1",
        "Connection": "keep-alive, X-Mine",
        "X-Mine": "1",
        "X-Passes": "yes",
        "X-Request-Id": "mine-1",
    }

    async def engine_with_secrets(wire: Wire, received: Received) -> None:
        await wire.json(200, CHAT, "Server: engine", "X-Flotilla-Node: n1", "Set-Cookie: a=b")

    async with Upstream(engine_with_secrets) as engine, a_door(engine.address) as door:
        async with door.post(headers=sent) as response:
            assert response.headers["X-Request-Id"] == "mine-1"
            assert response.headers["Server"] == "flotilla"
            assert "X-Flotilla-Node" not in response.headers
            assert "Set-Cookie" not in response.headers
        received = engine.received[0]
        assert received.header("X-Passes") == "yes"
        assert received.header("X-Request-Id") == "mine-1"
        assert received.header("Accept-Encoding") == "identity"
        for name in ("Authorization", "Cookie", "X-Forwarded-For", "X-Flotilla-Anything", "X-Mine"):
            assert received.header(name) is None, name


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_first_byte_frees_the_engine(stream: bool) -> None:
    """# spec: T5, case RS-01"""
    asked = asyncio.Event()

    async def silent(wire: Wire, received: Received) -> None:
        asked.set()
        await wire.gone()

    async with Upstream(silent) as engine, a_door(engine.address) as door:
        async with asyncio.TaskGroup() as group:
            request = group.create_task(drain(door, stream))
            await asked.wait()
            request.cancel()
        await engine.closed()
        (route,) = door.routes()
        await door.settled()
        assert route.live.breaker.failures == 0
        counted = door.metric("flotilla_router_requests_total", model="tiny", outcome="cancelled")
        assert counted == 1


async def drain(door: Door, stream: bool) -> None:
    async with door.post(stream=stream) as response:
        await response.read()


async def test_a_stale_pooled_connection_is_repeated_unseen() -> None:
    """# spec: T5, T6, case UM-01"""

    async def resets_the_second(wire: Wire, received: Received) -> None:
        if received.served:
            wire.reset()
        else:
            await wire.json()

    async with Upstream(resets_the_second) as engine, a_door(engine.address) as door:
        for _ in range(40):
            async with door.post() as response:
                assert response.status == 200
                await response.read()
        (route,) = door.routes()
        assert route.live.breaker.failures == 0
        assert door.metric("flotilla_router_retries_total", model="tiny") == 0
        assert engine.connections == 40


async def test_a_reset_on_a_fresh_connection_is_a_failure() -> None:
    """# spec: T6"""

    async def resets(wire: Wire, received: Received) -> None:
        wire.reset()

    async with Upstream(resets) as engine, a_door(engine.address) as door:
        async with door.post() as response:
            assert response.status == 502
            assert error_of(await response.json())["code"] == "upstream_failed"
        (route,) = door.routes()
        assert route.live.breaker.failures == 1
        assert engine.connections == 1


async def test_an_engines_400_goes_on_to_a_streaming_client() -> None:
    """# spec: T1, case UM-03a"""

    async def too_long(wire: Wire, received: Received) -> None:
        await wire.json(400, {"error": {"message": "prompt is too long"}})

    async with (
        Upstream(too_long) as engine,
        a_door(engine.address) as door,
        door.post(stream=True) as response,
    ):
        assert response.status == 400
        assert await response.json() == {"error": {"message": "prompt is too long"}}


async def no_events(wire: Wire, received: Received) -> None:
    await wire.events()
    await wire.end()


async def no_body(wire: Wire, received: Received) -> None:
    await wire.answer(200, b"")


@pytest.mark.parametrize(("script", "stream"), [(no_events, True), (no_body, False)])
async def test_an_empty_answer_is_a_fault_and_another_is_asked(
    script: object, stream: bool
) -> None:
    """# spec: T5, case UM-03b, UM-03c"""
    async with (
        upstreams(no_events if stream else no_body, chats) as (empty, good),
        a_door(empty.address) as door,
    ):
        async with door.post(stream=stream) as response:
            assert response.status == 502
            assert error_of(await response.json())["code"] == "upstream_failed"
        door.serve(empty.address, good.address)
        for _ in range(6):
            async with door.post(stream=stream) as response:
                assert response.status == 200
                assert await response.read()


async def test_time_limits_differ_for_streams_and_whole_answers() -> None:
    """# spec: T5, case UM-08"""

    async def slow(wire: Wire, received: Received) -> None:
        await asyncio.sleep(0.4)
        await chats(wire, received)

    timing = Timing(connect=1, first_byte=0.1, whole_first_byte=None, idle=10)
    async with Upstream(slow) as engine, a_door(engine.address, timing=timing) as door:
        async with door.post() as response:
            assert response.status == 200
        async with door.post(stream=True) as response:
            assert response.status == 504
            assert error_of(await response.json())["code"] == "upstream_timeout"
        await engine.closed()


async def test_a_silent_engine_is_left_before_another_is_asked() -> None:
    """# spec: T5, case RF-05"""
    order: list[str] = []

    async def silent(wire: Wire, received: Received) -> None:
        order.append("silent asked")
        await wire.gone()
        order.append("silent closed")

    async def answers(wire: Wire, received: Received) -> None:
        order.append("other asked")
        await chats(wire, received)

    timing = Timing(connect=1, first_byte=0.2, whole_first_byte=0.2, idle=10)
    async with upstreams(silent, answers) as (first, second):
        async with a_door(first.address, timing=timing) as door:
            async with door.post(stream=False) as response:
                assert response.status == 504  # Whole answers are not started over.
            door.serve(first.address, second.address)
            while len(first.received) < 2:
                async with door.post(stream=True) as response:
                    assert (await response.read()).endswith(DONE)
        assert order[-3:-1] == ["silent asked", "silent closed"] or order[-3:] == [
            "silent asked",
            "other asked",
            "silent closed",
        ]


@pytest.mark.parametrize(("stream", "asked"), [(True, 2), (False, 1)])
async def test_silence_starts_a_whole_answer_over_nowhere(stream: bool, asked: int) -> None:
    """# spec: T5, case UM-08"""

    async def silent(wire: Wire, received: Received) -> None:
        await wire.gone()

    timing = Timing(connect=1, first_byte=0.1, whole_first_byte=0.1, idle=10)
    async with (
        upstreams(silent, silent) as engines,
        a_door(*(engine.address for engine in engines), timing=timing) as door,
        door.post(stream=stream) as response,
    ):
        assert response.status == 504
        assert error_of(await response.json())["code"] == "upstream_timeout"
        assert sum(len(engine.received) for engine in engines) == asked


async def test_bad_requests_open_no_breaker_and_go_nowhere_else() -> None:
    """# spec: T6, case RF-01"""

    async def refuses(wire: Wire, received: Received) -> None:
        await wire.json(400, {"error": {"message": "context", "code": "context_length_exceeded"}})

    async with (
        upstreams(refuses, refuses) as engines,
        a_door(*(e.address for e in engines)) as door,
    ):
        for _ in range(50):
            async with door.post() as response:
                assert response.status == 400
                assert error_of(await response.json())["code"] == "context_length_exceeded"
        assert sum(len(e.received) for e in engines) == 50
        for route in door.routes():
            assert route.live.breaker.failures == 0


async def test_busy_is_not_dead() -> None:
    """# spec: T5, T6, case RF-03"""

    async def busy_at_first(wire: Wire, received: Received) -> None:
        if received.number < 20:
            await wire.json(503, {"error": {"message": "queue is full"}}, "Retry-After: 1")
        else:
            await wire.json()

    async with upstreams(busy_at_first, chats) as (busy, idle), a_door(busy.address) as door:
        for _ in range(20):
            async with door.post() as response:
                assert response.status == 503
                assert response.headers["Retry-After"] == "1"
                assert error_of(await response.json())["message"] == "queue is full"
            (route,) = door.routes()
            assert route.live.breaker.failures == 0
        async with door.post() as response:
            assert response.status == 200
        busy.received.clear()
        door.serve(busy.address, idle.address)
        for _ in range(20):
            async with door.post() as response:
                assert response.status == 200


async def test_a_busy_answer_without_retry_after_gets_one() -> None:
    """# spec: T4"""

    async def busy(wire: Wire, received: Received) -> None:
        await wire.json(429, {"error": {"message": "later"}})

    async with Upstream(busy) as engine, a_door(engine.address) as door, door.post() as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "5"


async def three_and_reset(wire: Wire, received: Received) -> None:
    await wire.events()
    for _ in range(3):
        await wire.chunk(delta())
    await wire.chunk(b'data: {"id":"half an ev')
    await asyncio.sleep(0.05)  # So that the bytes are read before the reset throws them away.
    wire.reset()


async def test_a_stream_that_breaks_ends_with_an_error_event_and_is_not_started_over() -> None:
    """# spec: T5, R3, case RF-05"""
    async with (
        upstreams(three_and_reset, chats) as (breaks, good),
        a_door(breaks.address, good.address) as door,
    ):
        whole = broken = 0
        for _ in range(20):
            async with door.post(stream=True) as response:
                assert response.status == 200
                events = await events_of(response)
            if events[-1] == "[DONE]":
                whole += 1
            else:
                assert len(events) == 4
                assert error_of(events[-1])["code"] == "upstream_failed"
                broken += 1
        assert broken == len(breaks.received)
        assert whole == len(good.received)
        counted = door.metric("flotilla_router_requests_total", model="tiny", outcome="broken")
        assert counted == broken > 0


async def test_a_stream_that_ends_early_is_not_taken_for_whole() -> None:
    """# spec: R3"""

    async def stops(wire: Wire, received: Received) -> None:
        await wire.events()
        await wire.chunk(delta())
        await wire.end()

    async with Upstream(stops) as engine, a_door(engine.address) as door:
        async with door.post(stream=True) as response:
            events = await events_of(response)
        assert len(events) == 2
        assert error_of(events[-1])["code"] == "upstream_failed"


async def test_a_reset_after_the_last_event_breaks_nothing() -> None:
    """# spec: R3, T6"""

    async def resets_when_done(wire: Wire, received: Received) -> None:
        await wire.events()
        await wire.chunk(delta())
        await wire.chunk(DONE)
        await asyncio.sleep(0.05)
        wire.reset()

    async with Upstream(resets_when_done) as engine, a_door(engine.address) as door:
        async with door.post(stream=True) as response:
            assert await response.read() == delta() + DONE
        (route,) = door.routes()
        assert route.live.breaker.failures == 0
        assert door.metric("flotilla_router_requests_total", model="tiny", outcome="ok") == 1


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_every_answer_names_its_request(status: int) -> None:
    """# spec: T12"""

    async def refuses(wire: Wire, received: Received) -> None:
        await wire.json(status, {"error": {"message": "no"}})

    mine = {"X-Request-Id": "mine-1"}
    async with Upstream(refuses) as engine, a_door(engine.address) as door:
        async with door.post(headers=mine) as response:
            assert response.status == status
            assert response.headers["X-Request-Id"] == "mine-1"
        async with door.post(headers=mine, model="unknown") as response:
            assert response.status == 404
            assert response.headers["X-Request-Id"] == "mine-1"


async def test_a_long_answer_that_breaks_is_cut_and_never_looks_whole() -> None:
    """# spec: T5"""

    async def breaks(wire: Wire, received: Received) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
        )
        await wire.send(head + b"x" * 500_000)
        await asyncio.sleep(0.05)
        wire.reset()

    async with Upstream(breaks) as engine, a_door(engine.address) as door:
        with pytest.raises(aiohttp.ClientError):
            async with door.post() as response:
                await response.read()


async def test_a_short_answer_that_breaks_fails_over() -> None:
    """# spec: T5"""

    async def breaks(wire: Wire, received: Received) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        wire.close()

    async with (
        upstreams(breaks, chats) as (first, second),
        a_door(first.address, second.address) as door,
    ):
        for _ in range(4):
            async with door.post() as response:
                assert response.status == 200
                assert await response.json() == CHAT


async def test_a_dead_endpoint_costs_no_request_and_its_breaker_opens() -> None:
    """# spec: T5, T6"""
    async with (
        upstreams(chats, chats) as (dead, alive),
        a_door(dead.address, alive.address) as door,
    ):
        await dead.stop()
        for _ in range(30):
            async with door.post(stream=True) as response:
                assert response.status == 200
                assert (await response.read()).endswith(DONE)
        retries = door.metric("flotilla_router_retries_total", model="tiny")
        assert retries == 5


async def test_a_model_without_a_living_endpoint_says_so() -> None:
    """# spec: T1, C9"""
    catalog = """
    models:
      tiny: {engine: llamacpp, source: /m, aliases: [small]}
      off: {engine: llamacpp, source: /m, replicas: 0}
    """
    async with Upstream() as engine, a_door(catalog=catalog) as door:
        await engine.stop()
        async with door.post() as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "5"
            assert error_of(await response.json())["code"] == "model_starting"
        async with door.post(model="off") as response:
            assert response.status == 503
            assert error_of(await response.json())["code"] == "model_stopped"
        async with door.post(model="nothing") as response:
            assert response.status == 404
            assert error_of(await response.json())["code"] == "model_not_found"


async def test_nobody_listens_there() -> None:
    """# spec: T1"""
    async with Upstream() as engine:
        address = engine.address
        await engine.stop()
        async with a_door(address) as door, door.post() as response:
            assert response.status == 503
            assert error_of(await response.json())["code"] == "upstream_unreachable"
            assert address not in await response.text()


async def test_half_an_emoji_and_broken_bytes_are_the_clients_fault() -> None:
    """# spec: T1, case RQ-01"""
    half = b'{"model":"tiny","messages":[{"role":"user","content":"cut: \\ud83d"}]}'
    raw = b'{"model":"tiny","messages":[{"role":"user","content":"\xff\xfe"}]}'
    async with Upstream() as engine, a_door(engine.address) as door:
        for body, said in ((half, "surrogate"), (raw, "UTF-8"), (b"[1]", "object"), (b"{", "JSON")):
            async with door.client.post("/v1/chat/completions", data=body) as response:
                assert response.status == 400
                assert said in str(error_of(await response.json())["message"])
        assert engine.received == []


async def test_a_large_body_is_refused_before_it_is_read() -> None:
    async with Upstream() as engine, a_door(engine.address, max_body=10_000) as door:
        host, port = door.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            b"Expect: 100-continue\r\nContent-Length: 10001\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        writer.close()

        async def much() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 1000

        async with door.client.post("/v1/chat/completions", data=much()) as response:
            assert response.status == 413
            assert error_of(await response.json())["code"] == "request_too_large"
        assert engine.received == []


async def test_expect_is_answered_and_not_passed_on() -> None:
    body = b'{"model":"tiny","messages":[]}'
    async with Upstream() as engine, a_door(engine.address) as door:
        async with door.client.post("/v1/chat/completions", data=body, expect100=True) as response:
            assert response.status == 200
        assert engine.received[0].header("Expect") is None
        assert engine.received[0].body == body


async def test_management_paths_are_not_there() -> None:
    """# spec: T10"""
    async with a_door() as door:
        for path in ("/livez", "/readyz", "/metrics", "/api/v1/router", "/", "/v1/nope"):
            async with door.client.get(path) as response:
                assert response.status == 404
                assert error_of(await response.json())["code"] == "not_found"
        async with door.client.get("/v1/chat/completions") as response:
            assert response.status == 405


async def test_the_model_list_shows_aliases_and_not_the_hidden() -> None:
    """# spec: C10, T1"""
    catalog = """
    models:
      org/tiny: {engine: llamacpp, source: /m, aliases: [small]}
      secret: {engine: llamacpp, source: /m, hidden: true}
    """
    async with a_door(catalog=catalog) as door:
        async with door.client.get("/v1/models") as response:
            listed = await response.json()
            assert [model["id"] for model in listed["data"]] == ["org/tiny", "small"]
        for name in ("org/tiny", "org%2Ftiny", "small", "secret"):
            async with door.client.get(f"/v1/models/{name}") as response:
                assert response.status == 200, name
        async with door.client.get("/v1/models/none") as response:
            assert response.status == 404


async def test_a_slow_client_slows_the_engine_and_nothing_piles_up() -> None:
    sent = 0

    async def fast(wire: Wire, received: Received) -> None:
        nonlocal sent
        await wire.events()
        for _ in range(400):
            await wire.chunk(delta("x" * 100_000))
            sent += 1
        await wire.chunk(DONE)
        await wire.end()

    async with Upstream(fast) as engine, a_door(engine.address) as door:
        async with door.post(stream=True) as response:
            await response.content.read(1)
            before = -1
            while before != sent:  # Until the engine is held back.
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 200
            assert (await response.content.read()).endswith(DONE)
        assert sent == 400


async def test_the_end_of_the_router_ends_streams_with_an_error_event() -> None:
    began = asyncio.Event()

    async def endless(wire: Wire, received: Received) -> None:
        await wire.events()
        await wire.chunk(delta())
        began.set()
        await wire.gone()

    async with Upstream(endless) as engine, a_door(engine.address) as door:
        async with door.post(stream=True) as response:
            await began.wait()
            await response.content.readline()
            door.upstreams.shut_down()
            events = await events_of(response)
        assert error_of(events[-1])["code"] == "shutting_down"


async def test_invented_model_names_make_no_series() -> None:
    """# spec: case MT-01"""
    async with Upstream() as engine, a_door(engine.address) as door:
        await drain(door, stream=False)
        before = len(door.page().splitlines())
        for number in range(50):
            async with door.post(model=f"invented-{number}") as response:
                assert response.status == 404
        assert len(door.page().splitlines()) <= before + 4
        assert "invented" not in door.page()


async def test_a_request_ends_under_the_catalog_that_accepted_it() -> None:
    """# spec: C8, C2"""
    asked, go = asyncio.Event(), asyncio.Event()

    async def waits_then_breaks(wire: Wire, received: Received) -> None:
        asked.set()
        await go.wait()
        wire.reset()

    async with upstreams(waits_then_breaks, chats) as (first, second):
        async with a_door(first.address) as door, asyncio.TaskGroup() as group:

            async def ask() -> int:
                async with door.post(stream=True) as response:
                    assert (await response.read()).endswith(DONE)
                    return response.status

            request = group.create_task(ask())
            await asked.wait()
            door.serve(first.address, second.address)
            door.table.set_catalog(a_catalog("models: {}"))
            go.set()
            assert await request == 200
            async with door.post() as response:
                assert response.status == 404
        assert len(second.received) == 1


async def test_an_engines_500_is_a_fault_and_another_is_asked() -> None:
    """# spec: T5, T6"""

    async def fails(wire: Wire, received: Received) -> None:
        await wire.json(500, {"error": {"message": "engine is dead"}})

    async with upstreams(fails, chats) as (bad, good), a_door(bad.address) as door:
        async with door.post() as response:
            assert response.status == 500
            assert error_of(await response.json())["message"] == "engine is dead"
        (route,) = door.routes()
        assert route.live.breaker.failures == 1
        door.serve(bad.address, good.address)
        for _ in range(6):
            async with door.post() as response:
                assert response.status == 200


async def test_a_client_that_closes_right_after_the_last_event_was_served() -> None:
    """# spec: T12, case MT-03"""

    async def lingers(wire: Wire, received: Received) -> None:
        await wire.events()
        await wire.chunk(delta())
        await wire.chunk(DONE)
        await wire.gone()

    async with Upstream(lingers) as engine, a_door(engine.address) as door:
        async with door.post(stream=True) as response:
            async for line in response.content:
                if line.startswith(b"data: [DONE]"):
                    break
            response.close()
        await engine.closed()
        await door.settled()
        assert door.metric("flotilla_router_requests_total", model="tiny", outcome="ok") == 1
        (route,) = door.routes()
        assert route.live.breaker.failures == 0


async def test_no_hidden_limit_holds_streams_back() -> None:
    """# spec: T4, case LB-03"""
    go = asyncio.Event()

    async def waits(wire: Wire, received: Received) -> None:
        await wire.events()
        await wire.chunk(delta())
        await go.wait()
        await wire.chunk(DONE)
        await wire.end()

    async with (
        Upstream(waits) as engine,
        a_door(engine.address) as door,
        aiohttp.ClientSession(door.url, connector=aiohttp.TCPConnector(limit=0)) as many,
    ):
        door.client, before = many, door.client
        async with asyncio.TaskGroup() as group:
            for _ in range(300):
                group.create_task(drain(door, stream=True))
            async with asyncio.timeout(30):
                while len(engine.received) < 300:  # noqa: ASYNC110 - it has no event.
                    await asyncio.sleep(0.01)
            (route,) = door.routes()
            assert route.live.in_flight == 300
            go.set()
        assert route.live.in_flight == 0
        door.client = before


async def test_a_compressed_request_is_understood() -> None:
    body = gzip.compress(b'{"model":"small","messages":[]}')
    async with Upstream() as engine, a_door(engine.address) as door:
        async with door.client.post(
            "/v1/chat/completions", data=body, headers={"Content-Encoding": "gzip"}
        ) as response:
            assert response.status == 200
        assert engine.received[0].body == b'{"model":"tiny","messages":[]}'
        assert engine.received[0].header("Content-Encoding") is None


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    """# spec: T5"""

    async def old_fashioned(wire: Wire, received: Received) -> None:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
        wire.close()

    async with Upstream(old_fashioned) as engine, a_door(engine.address) as door:
        for _ in range(3):
            async with door.post() as response:
                assert response.status == 200
                assert await response.json() == {}
        assert engine.connections == 3


async def test_what_is_no_http_is_a_fault() -> None:
    """# spec: T6"""

    async def nonsense(wire: Wire, received: Received) -> None:
        await wire.send(b"SSH-2.0-OpenSSH\r\n")
        await wire.gone()

    async def endless_head(wire: Wire, received: Received) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000)
        await wire.gone()

    for script in (nonsense, endless_head):
        async with Upstream(script) as engine, a_door(engine.address) as door:
            async with door.post() as response:
                assert response.status == 502
            await engine.closed()


async def test_more_bytes_than_the_answer_has_spoil_the_connection_only() -> None:
    async def talkative(wire: Wire, received: Received) -> None:
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        await wire.send(whole + whole)

    async with Upstream(talkative) as engine, a_door(engine.address) as door:
        for _ in range(3):
            async with door.post() as response:
                assert response.status == 200
                assert await response.read() == b"{}"
        assert engine.connections == 3


async def test_silence_within_an_answer_ends_it() -> None:
    """# spec: T5, case RS-02"""

    async def stalls(wire: Wire, received: Received) -> None:
        await wire.events()
        for _ in range(4):
            await asyncio.sleep(0.2)
            await wire.chunk(delta())
        await wire.gone()

    timing = Timing(connect=1, first_byte=None, whole_first_byte=None, idle=0.5)
    async with Upstream(stalls) as engine, a_door(engine.address, timing=timing) as door:
        async with asyncio.timeout(20), door.post(stream=True) as response:
            events = await events_of(response)
        assert len(events) == 5  # All four, though together they took longer than the limit.
        assert error_of(events[-1])["code"] == "upstream_timeout"


async def test_an_attempt_that_failed_leaves_nothing_to_the_next() -> None:
    """# spec: T5"""

    async def breaks(wire: Wire, received: Received) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500_000)
        await asyncio.sleep(0.05)
        wire.reset()

    async with (
        upstreams(no_events, breaks) as (first, second),
        a_door(first.address, second.address) as door,
    ):
        door.routes()[1].live.in_flight = 9  # So that the other is asked first.
        async with door.post(stream=True) as response:
            with pytest.raises(aiohttp.ClientError):
                await response.read()
        assert (len(first.received), len(second.received)) == (1, 1)


async def test_a_probe_whose_client_left_is_no_verdict() -> None:
    """# spec: T6"""
    shift = 0.0
    asked = asyncio.Event()

    async def silent(wire: Wire, received: Received) -> None:
        asked.set()
        await wire.gone()

    async with (
        Upstream(no_body) as engine,
        a_door(engine.address, monotonic=lambda: time.monotonic() + shift) as door,
    ):
        (route,) = door.routes()
        for _ in range(FAILURES):
            await drain(door, stream=False)
        assert not route.live.breaker.allows(time.monotonic())
        shift, engine.script = OPEN_SECONDS, silent
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(drain(door, stream=False))
            await asked.wait()
            assert not route.live.breaker.allows(time.monotonic() + shift)
            probe.cancel()
        await door.settled()
        assert route.live.breaker.allows(time.monotonic() + shift)
        engine.script = chats
        await drain(door, stream=False)
        assert route.live.breaker.phase(time.monotonic() + shift) == "closed"


async def test_series_of_a_model_end_with_it() -> None:
    """# spec: C5, case MT-01"""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(wire: Wire, received: Received) -> None:
        asked.set()
        await go.wait()
        await chats(wire, received)

    async with Upstream() as engine, a_door(engine.address) as door:
        await drain(door, stream=True)
        assert 'model="tiny"' in door.page()
        engine.script = slow
        async with asyncio.TaskGroup() as group:
            group.create_task(drain(door, stream=True))
            await asked.wait()
            door.table.set_catalog(a_catalog("models: {}"))
            door.metrics.tidy()
            assert 'model="tiny"' not in door.page()
            go.set()
        assert 'model="tiny"' not in door.page()
        assert door.metric("flotilla_router_requests_total", model="other", outcome="ok") == 1


async def test_uses_are_noted() -> None:
    """# spec: T7"""
    async with Upstream() as engine, a_door(engine.address) as door:
        await drain(door, stream=False)
        (route,) = door.routes()
        assert door.used.of(route.key.replica) is not None
