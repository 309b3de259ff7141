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
from collections.abc import Collection, Sequence

from services.router.answer import Answer, Limits, UpstreamError
from services.router.connection import Connection
from services.router.endpoints import EndpointKey

IDLE_LIMIT = 256
"""Connections kept per endpoint."""
IDLE_SECONDS = 30.0


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
