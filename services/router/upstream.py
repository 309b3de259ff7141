"""HTTP/1.1 client for engines: pooled connections, requests that are sent once.

Knows bytes, connections and time limits; nothing of models, retries or breakers. What can go wrong:

- No connection within the limit, or refused: `UpstreamError` of kind `connect`.
- The connection ends before the answer does: `reset`. On a connection that had served before, with
  not a byte of the answer, the engine had most likely closed it while idle: the request is repeated
  once on a fresh connection, and nobody is told.
- Silence beyond the limit: `timeout`. Up to the first byte of the body one limit holds, from there
  on another, which every byte starts anew. While the reader is slow, time stands still.
- An answer that is not HTTP: `malformed`.
- The router itself ends: `shutdown`, so that whoever reads can still say so to its client.

A caller that is cancelled or calls `close` ends the connection at once, so the engine stops working.
A reader that is slow stops the reading from the engine.
"""

import asyncio
import socket
from collections.abc import Collection, Sequence
from typing import Literal, cast

import httptools
from msgspec import Struct

from services.router.endpoints import EndpointKey
from services.router.headers import Header, first

HEAD_LIMIT = 64 << 10
"""Bytes of status line and headers."""
HIGH_WATER = 256 << 10
"""Bytes waiting for the reader at which reading from the engine pauses."""
IDLE_LIMIT = 256
"""Connections kept per endpoint."""
IDLE_SECONDS = 30.0
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))
_USER_TIMEOUT_MS = 15_000

ErrorKind = Literal["connect", "reset", "timeout", "malformed", "shutdown"]


class UpstreamError(Exception):
    """The engine gave no proper answer."""

    def __init__(self, kind: ErrorKind, reason: str, untouched: bool = False) -> None:
        super().__init__(reason)
        self.kind: ErrorKind = kind
        self.reason = reason
        self.untouched = untouched
        """Not a byte of the answer had come."""


class Limits(Struct, frozen=True, gc=False, kw_only=True):
    """Seconds; None: no limit."""

    connect: float | None
    first_byte: float | None
    """Up to the first byte of the answer's body."""
    idle: float | None
    """Between bytes after that."""


class Answer:
    """One answer as it arrives. Read by one reader; `close` when done with it, whatever happened."""

    __slots__ = (
        "_connection",
        "_error",
        "_parts",
        "_size",
        "_waiter",
        "complete",
        "headers",
        "status",
    )

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        """0 until the head is there."""
        self.headers: list[Header] = []
        self.complete = False
        self._connection: Connection | None = connection
        self._error: UpstreamError | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    async def started(self) -> None:
        """Until status and headers are there."""
        while not self.status:
            await self._wait()

    async def buffered(self, size: int) -> int:
        """Until `size` bytes of the body wait to be read, or it is complete. How many do."""
        while self._size < size and not self.complete:
            await self._wait()
        return self._size

    async def read(self) -> bytes:
        """All that has come since; empty at the end."""
        while not self._parts and not self.complete:
            await self._wait()
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._connection is not None:
            self._connection.resume()
        return data

    def close(self) -> None:
        """Ends the connection if the answer is not complete. Idempotent."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Something has changed."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def feed(self, data: bytes) -> bool:
        """False: the reader is behind."""
        self._parts.append(data)
        self._size += len(data)
        return self._size < HIGH_WATER

    def finish(self, error: UpstreamError | None = None) -> None:
        """No more will come."""
        self.complete, self._error, self._connection = error is None, error, None
        self.wake()


class Connection(asyncio.Protocol):
    """One connection to an engine; at most one request at a time."""

    def __init__(self, pool: "Pool") -> None:
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._paused = False
        self._head_bytes = 0
        self._informational = False
        self._body: list[bytes] = []
        self._ended = False
        self._keep = False
        self._limit: float | None = None
        self._idle_limit: float | None = None
        self._last_byte = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # Called by the pool and the answer.

    @property
    def usable(self) -> bool:
        """Open and free."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: Sequence[bytes], limits: Limits) -> Answer:
        """Raises UpstreamError if it was lost meanwhile."""
        if self._transport is None:
            raise UpstreamError("reset", "connection closed", untouched=True)
        self._answer = answer = Answer(self)
        self._pool.busy.add(self)
        self._head_bytes, self._ended, self._keep = 0, False, False
        self._idle_limit = limits.idle
        self._watch(limits.first_byte)
        self._transport.writelines(request)
        return answer

    def resume(self) -> None:
        """The reader has caught up."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._last_byte = self._loop.time()
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close without a word."""
        self._answer = None
        self._pool.busy.discard(self)
        self._unwatch()
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance.
        _notice_dead_peers(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.lost(self)
        answer = self._answer
        if answer is None:
            return
        if exc is None and answer.status and _ends_with_connection(answer.headers):
            self._finish(answer)
            return
        untouched = not self._head_bytes
        self.fail(
            UpstreamError("reset", "connection closed before the end of the answer", untouched)
        )

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # Nothing was asked.
            self.abort()
            return
        self._last_byte = self._loop.time()
        self._head_bytes += 0 if self._answer.status else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._ended:
                self.fail(UpstreamError("malformed", f"not an HTTP answer: {error}"))
                return
            self._keep = False  # Bytes beyond the end of the answer.
        self._pass_on(self._answer)

    # Called by the parser, within data_received.

    def on_message_begin(self) -> None:
        self._keep = False  # Before the first answer it is so; a second one was not asked for.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None and not self._ended:
            self._answer.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._informational = 100 <= status < 200
        if self._answer is None or self._ended:
            return
        if self._informational:
            self._answer.headers.clear()
        else:
            self._answer.status = status

    def on_body(self, data: bytes) -> None:
        if not self._ended:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if not self._informational and not self._ended:
            self._ended = True
            self._keep = self._parser.should_keep_alive()  # Only true if asked here.

    # Its own.

    def _pass_on(self, answer: Answer) -> None:
        if not answer.status and self._head_bytes > HEAD_LIMIT:
            self.fail(UpstreamError("malformed", f"headers larger than {HEAD_LIMIT} bytes"))
            return
        if self._body:
            if self._limit != self._idle_limit:
                self._watch(self._idle_limit)
            keeps_up = answer.feed(b"".join(self._body))
            self._body.clear()
            if not keeps_up and not self._ended:
                self._pause()
        if self._ended:
            self._finish(answer)
        else:
            answer.wake()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _finish(self, answer: Answer) -> None:
        self._answer = None
        self._pool.busy.discard(self)
        self._unwatch()
        self.resume()
        answer.finish()
        if self._keep and self.usable:
            self._pool.give_back(self)
        elif self._transport is not None:
            self._transport.close()

    def fail(self, error: UpstreamError) -> None:
        """Whoever waits for the answer gets `error`."""
        answer = self._answer
        self.abort()
        if answer is not None:
            answer.finish(error)

    def _watch(self, limit: float | None) -> None:
        self._unwatch()
        self._limit = limit
        self._last_byte = self._loop.time()
        if limit is not None:
            self._timer = self._loop.call_later(limit, self._check, limit)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, limit: float) -> None:
        now = self._loop.time()
        since = now if self._paused else self._last_byte
        left = since + limit - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._check, limit)
        else:
            self.fail(UpstreamError("timeout", f"silent for {limit:g} s"))


class Pool:
    """The connections to one endpoint; the one used last is used first."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._idle: list[Connection] = []
        self._closed = False
        self.busy: set[Connection] = set()
        """Those with a request under way."""
        self.opened = 0
        """Connections made, ever."""

    async def request(self, request: Sequence[bytes], limits: Limits) -> Answer:
        """Send, and wait for the head of the answer. Raises UpstreamError."""
        kept = self._take()
        if kept is not None:
            try:
                return await self._ask(kept, request, limits)
            except UpstreamError as error:
                if not error.untouched:
                    raise  # Else the engine had closed it while it was idle.
        return await self._ask(await self._connect(limits.connect), request, limits)

    async def _ask(
        self, connection: Connection, request: Sequence[bytes], limits: Limits
    ) -> Answer:
        answer = connection.send(request, limits)
        try:
            await answer.started()
        except BaseException:
            answer.close()
            raise
        return answer

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self, limit: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                _, connection = await loop.create_connection(
                    lambda: Connection(self), self._host, self._port
                )
        except TimeoutError as error:
            raise UpstreamError("connect", "no connection in time") from error
        except ConnectionRefusedError as error:
            raise UpstreamError("connect", "connection refused") from error
        except OSError as error:
            raise UpstreamError("connect", error.strerror or type(error).__name__) from error
        self.opened += 1
        return connection

    def give_back(self, connection: Connection) -> None:
        """Its answer is complete and it may be used again."""
        if self._closed or len(self._idle) >= IDLE_LIMIT:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """It is closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def prune(self, now: float) -> None:
        """Close what was idle for long; the oldest stand first."""
        while self._idle and self._idle[0].idle_since + IDLE_SECONDS < now:
            self._idle.pop(0).abort()

    def close(self) -> None:
        """Idle connections close; those in use when their answer is complete."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()


class Upstreams:
    """The pools of all endpoints."""

    def __init__(self) -> None:
        self._pools: dict[EndpointKey, Pool] = {}

    def pool(self, key: EndpointKey) -> Pool:
        """Made when first asked for."""
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(key.address)
        return found

    def tidy(self, wanted: Collection[EndpointKey], now: float) -> None:
        """Close the pools of endpoints that are no more, and what was idle for long."""
        for key in self._pools.keys() - set(wanted):
            self._pools.pop(key).close()
        for pool in self._pools.values():
            pool.prune(now)

    def shut_down(self) -> None:
        """At the end of the program: every request still under way fails."""
        for pool in self._pools.values():
            pool.close()
            for connection in tuple(pool.busy):
                connection.fail(UpstreamError("shutdown", "shutting down"))


def _ends_with_connection(headers: Sequence[Header]) -> bool:
    return first(headers, b"content-length") is None and (
        b"chunked" not in (first(headers, b"transfer-encoding") or b"").lower()
    )


def _notice_dead_peers(connected: socket.socket | None) -> None:
    """A machine that vanished without a word is noticed in ~15 s. Not every system has every option."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS)):
        option: int | None = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
