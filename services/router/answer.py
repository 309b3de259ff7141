"""One answer of an engine: its head, then its body as it comes.

Knows bytes and who ends them; nothing of sockets. A reader that is slow stops the reading from the
engine; one that closes early ends the connection.
"""

import asyncio
from typing import Literal, Protocol

from msgspec import Struct

from services.router.headers import Header

HIGH_WATER = 256 << 10
"""Bytes waiting for the reader at which reading from the engine pauses."""

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


class Line(Protocol):
    """What an answer comes over."""

    def abort(self) -> None:
        """End it without a word."""
        ...

    def resume(self) -> None:
        """The reader has caught up."""
        ...


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

    def __init__(self, connection: Line) -> None:
        self.status = 0
        """0 until the head is there."""
        self.headers: list[Header] = []
        self.complete = False
        self._connection: Line | None = connection
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
