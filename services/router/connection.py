"""One connection to an engine, and the time limits of what is asked over it.

How it fails: `UpstreamError` of kind `reset`, `timeout` or `malformed`, told to whoever reads the
answer. Nothing here asks twice.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol, cast

import httptools

from services.router.answer import Answer, Limits, UpstreamError
from services.router.headers import Header, first

HEAD_LIMIT = 64 << 10
"""Bytes of status line and headers."""
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))
_USER_TIMEOUT_MS = 15_000


class Owner(Protocol):
    """Whose connection it is."""

    busy: "set[Connection]"
    """Those with a request under way."""

    def give_back(self, connection: "Connection") -> None:
        """Its answer is complete and it may be used again."""
        ...

    def lost(self, connection: "Connection") -> None:
        """It is closed."""
        ...


class Connection(asyncio.Protocol):
    """One connection to an engine; at most one request at a time."""

    def __init__(self, owner: Owner) -> None:
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._owner = owner
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
        self._owner.busy.add(self)
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
        self._owner.busy.discard(self)
        self._unwatch()
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance.
        _notice_dead_peers(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.lost(self)
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
        self._owner.busy.discard(self)
        self._unwatch()
        self.resume()
        answer.finish()
        if self._keep and self.usable:
            self._owner.give_back(self)
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
