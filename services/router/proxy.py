"""What becomes of one request, whichever door it came through.

A request keeps the model and the target that it was accepted under to its end, retries included.
While nothing has been sent to the client, another endpoint is tried when one fails or is busy: two
attempts in all, the first one's connection closed before the second. Within one attempt a request may
go out twice: where a kept connection turns out to be closed, with not a byte of an answer, it is sent
anew over a fresh one (`pool`). Once bytes have been sent, an answer that breaks ends with an
error event (a stream) or a connection cut short (anything else), never as if it were whole. A stream
is whole once its `[DONE]` has come, however its connection ends.

What can go wrong, and what the client sees:
- the body is no use: 400; the model is not in the catalog: 404; it is, without replicas or with none
  ready: 503;
- the engine is busy (429, 503): others are tried, then its own answer goes on with `Retry-After`;
- the engine refuses the connection, breaks off, answers nothing or nonsense, or 5xx: another is
  tried, then 502, 503 or the engine's own answer;
- the engine is silent: 504, for streams after another was tried;
- the client leaves: the connection to the engine is closed at once, and nobody is to blame.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from random import Random  # noqa: TID251 - the type; an instance is handed in.

import structlog
from msgspec import Struct

from services.router import body, headers, openai
from services.router.answer import Answer, Limits, UpstreamError
from services.router.endpoints import Route, Table
from services.router.events import WholeEvents
from services.router.exchange import ClientGone, Exchange, Request, Sink
from services.router.failures import (
    WHOLE_BYTES,
    Answered,
    Failure,
    failure_of,
    kept_of,
    nothing_ready,
    refuse,
    with_retry_after,
    worse,
)
from services.router.idle import LastUsed
from services.router.metrics import Metrics, Outcome
from services.router.openai import ApiError, Forwarded
from services.router.pick import pick
from services.router.pool import Upstreams

ATTEMPTS = 2
_BUSY = frozenset((429, 503))
_FAULTS = frozenset((500, 502, 504))

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Timing(Struct, frozen=True, gc=False, kw_only=True):
    """Limits of one upstream request. Seconds; None: off."""

    connect: float | None
    first_byte: float | None
    """Of streams."""
    whole_first_byte: float | None
    """Of answers that come when they are whole."""
    idle: float | None

    def limits(self, stream: bool) -> Limits:
        """For one request."""
        first = self.first_byte if stream else self.whole_first_byte
        return Limits(connect=self.connect, first_byte=first, idle=self.idle)


class Clock(Struct, frozen=True):
    """Handed in, so that tests own the time."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


class Proxy:
    """Serves the forwarded routes from the table."""

    def __init__(
        self,
        table: Table,
        upstreams: Upstreams,
        timing: Timing,
        metrics: Metrics,
        used: LastUsed,
        chance: Random,
        clock: Clock,
    ) -> None:
        self._table = table
        self._upstreams = upstreams
        self._timing = timing
        self._metrics = metrics
        self._used = used
        self._chance = chance
        self._clock = clock
        self.active = 0
        """Requests under way."""
        self._ended = asyncio.Event()

    async def forward(self, route: Forwarded, request: Request, sink: Sink) -> None:
        """Answer through `sink`. Raises ClientGone, or CancelledError when the door gives up."""
        identity = self._identity(request)
        asked = body.read(request.body)
        if isinstance(asked, body.Unusable):
            await self._reject(sink, openai.bad_request(asked.message, asked.param), identity)
            return
        target = self._table.find(asked.model)
        if target is None:
            known = self._table.known
            error = openai.model_not_found(asked.model) if known else openai.starting()
            await self._reject(sink, error, identity)
            return
        began = self._clock.monotonic()
        exchange = Exchange(request, route, sink, asked, target, began, identity)
        outcome: Outcome = "failed"
        self.active += 1
        try:
            outcome = await self._serve(exchange)
        except (ClientGone, asyncio.CancelledError):
            outcome = "ok" if exchange.whole else "cancelled"
            raise
        finally:
            self.active -= 1
            self._ended.set()
            self._metrics.ended(exchange.model.name, outcome)

    async def quiet(self) -> None:
        """Until no request is under way."""
        while self.active:
            self._ended.clear()
            await self._ended.wait()

    async def _reject(self, sink: Sink, error: ApiError, identity: str) -> None:
        self._metrics.ended(None, "rejected" if error.status < 500 else "refused")
        await refuse(sink, error, identity)

    def _identity(self, request: Request) -> str:
        given = headers.first(request.headers, b"x-request-id")
        if given and len(given) <= 128 and given.isascii():
            return given.decode()
        return f"req-{self._chance.getrandbits(64):016x}"

    async def _serve(self, exchange: Exchange) -> Outcome:
        failure: Failure | None = None
        for attempt in range(ATTEMPTS):
            route = pick(exchange.target, exchange.tried, self._clock.monotonic(), self._chance)
            if route is None:
                break
            if attempt:
                self._metrics.retried(exchange.model.name)
            exchange.tried.append(route)
            result = await self._attempt(exchange, route)
            if not isinstance(result, ApiError | Answered):
                return result
            failure = worse(failure, result)
            if not self._may_retry(exchange, result):
                break
        return await self._refuse(exchange, failure or nothing_ready(exchange))

    def _may_retry(self, exchange: Exchange, failure: Failure) -> bool:
        if not isinstance(failure, ApiError):
            return True
        if failure.code == "upstream_timeout" and not exchange.asked.stream:
            return False  # The engine may have worked on it all along; a second one would too.
        return failure.code != "shutting_down"

    async def _refuse(self, exchange: Exchange, failure: Failure) -> Outcome:
        if isinstance(failure, ApiError):
            await refuse(exchange.sink, failure, exchange.id)
            return "refused" if failure.status in _BUSY else "failed"
        kept = with_retry_after(failure) if failure.status in _BUSY else failure.headers
        await exchange.sink.start(failure.status, kept, len(failure.body))
        await exchange.sink.write(failure.body)
        await exchange.sink.end()
        return "refused" if failure.status in _BUSY else "failed"

    async def _attempt(self, exchange: Exchange, route: Route) -> Outcome | Failure:
        exchange.events = None
        with self._lease(route):
            try:
                answer = await self._upstreams.pool(route.key).request(
                    _head_and_body(exchange, route), self._timing.limits(exchange.asked.stream)
                )
                with contextlib.closing(answer):
                    return await self._take(exchange, route, answer)
            except UpstreamError as error:
                if exchange.whole:
                    return await self._complete(exchange, route)
                if error.kind != "shutdown":
                    self._failed(exchange, route, error.reason)
                failure = failure_of(exchange.model.name, error)
                if not exchange.sent:
                    return failure
                await self._break_off(exchange, failure)
                return "broken"

    @contextlib.contextmanager
    def _lease(self, route: Route) -> Generator[None, None, None]:
        live, replica = route.live, route.key.replica
        probe = live.breaker.begin(self._clock.monotonic())
        live.in_flight += 1
        self._used.note(replica, self._clock.wall())
        try:
            yield
        finally:
            live.in_flight -= 1
            live.breaker.end(probe)
            self._used.note(replica, self._clock.wall())

    def _failed(self, exchange: Exchange, route: Route, reason: str) -> None:
        route.live.breaker.failed(self._clock.monotonic(), reason)
        log.warning(
            "router.attempt_failed",
            request=exchange.id,
            model=exchange.model.name,
            replica=route.key.replica,
            reason=reason,
            sent=exchange.sent,
        )

    async def _take(self, exchange: Exchange, route: Route, answer: Answer) -> Outcome | Failure:
        if answer.status in _BUSY:
            route.live.breaker.succeeded()  # It is alive.
            return await kept_of(exchange, answer)
        if answer.status in _FAULTS:
            kept = await kept_of(exchange, answer)
            self._failed(exchange, route, f"answered {answer.status}")
            return kept
        if answer.status == 200 and _is_event_stream(answer):
            return await self._stream(exchange, route, answer)
        return await self._whole(exchange, route, answer)

    async def _whole(self, exchange: Exchange, route: Route, answer: Answer) -> Outcome | Failure:
        size = await answer.buffered(WHOLE_BYTES)
        if answer.status == 200 and answer.complete and not size:
            return self._empty(exchange, route)
        length = size if answer.complete else _content_length(answer)
        await self._start(exchange, answer, length)
        while data := await answer.read():
            await exchange.sink.write(data)
        await exchange.sink.end()
        route.live.breaker.succeeded()
        return "ok" if answer.status < 400 else "rejected"

    async def _stream(self, exchange: Exchange, route: Route, answer: Answer) -> Outcome | Failure:
        events = exchange.events = WholeEvents()
        while data := await answer.read():
            await self._send_events(exchange, answer, events.feed(data))
        await self._send_events(exchange, answer, events.rest())
        if not exchange.sent:
            return self._empty(exchange, route)
        if exchange.route.ends_with_done and not events.done:
            route.live.breaker.succeeded()
            await self._break_off(exchange, openai.upstream_failed(exchange.model.name))
            return "broken"
        return await self._complete(exchange, route)

    async def _complete(self, exchange: Exchange, route: Route) -> Outcome:
        route.live.breaker.succeeded()
        await exchange.sink.end()
        return "ok"

    async def _send_events(self, exchange: Exchange, answer: Answer, data: bytes) -> None:
        if not data:
            return
        if not exchange.sent:
            await self._start(exchange, answer, None)
        await exchange.sink.write(data)

    async def _start(self, exchange: Exchange, answer: Answer, length: int | None) -> None:
        self._metrics.first_byte(exchange.model.name, self._clock.monotonic() - exchange.began)
        exchange.sent = True
        await exchange.sink.start(answer.status, exchange.passed(answer.headers), length)

    def _empty(self, exchange: Exchange, route: Route) -> Failure:
        self._failed(exchange, route, "empty answer")
        return openai.upstream_failed(exchange.model.name)

    async def _break_off(self, exchange: Exchange, error: ApiError) -> None:
        if exchange.events is None:
            exchange.sink.cut()
            return
        await exchange.sink.write(error.event())
        await exchange.sink.end()


def _is_event_stream(answer: Answer) -> bool:
    """One whose events can be told apart: nobody asked for a compressed one."""
    kind = headers.first(answer.headers, b"content-type") or b""
    encoding = headers.first(answer.headers, b"content-encoding") or b"identity"
    return kind.lower().startswith(b"text/event-stream") and encoding == b"identity"


def _content_length(answer: Answer) -> int | None:
    stated = headers.first(answer.headers, b"content-length")
    return None if stated is None else int(stated)


def _head_and_body(exchange: Exchange, route: Route) -> tuple[bytes, bytes]:
    request, model = exchange.request, exchange.model.name
    content = request.body
    if exchange.asked.model != model:
        content = body.with_model(content, model)
    lines = [
        b"POST %b HTTP/1.1" % request.target.encode("latin-1"),
        b"Host: %b" % route.key.address.encode(),
        b"Content-Length: %d" % len(content),
        b"Accept-Encoding: identity",
    ]
    passed = headers.to_upstream(request.headers)
    lines += [b"%b: %b" % header for header in passed if header[0].lower() != b"x-request-id"]
    lines.append(b"X-Request-Id: %b" % exchange.id.encode())
    return b"\r\n".join((*lines, b"", b"")), content
