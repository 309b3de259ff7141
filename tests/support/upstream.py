"""A scripted engine on a raw socket: exact bytes, pauses, FIN and RST, and a count of connections."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
DONE = b"data: [DONE]\n\n"


def delta(text: str = "tok ") -> bytes:
    """One event of a streamed chat answer."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    event = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return b"data: " + json.dumps(event | {"choices": [choice]}).encode() + b"\n\n"


@dataclass
class Received:
    """One request as it came."""

    head: bytes
    body: bytes
    served: int
    """Requests that its connection had seen before."""
    number: int
    """Requests that the upstream had seen before."""

    def header(self, name: str) -> str | None:
        found = re.search(rb"(?im)^" + name.encode() + rb":[ \t]*(.*?)\r$", self.head)
        return None if found is None else found[1].decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The connection that a request came on, in the hands of a script."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int, body: bytes, *headers: str) -> None:
        """A whole answer on a connection that stays open."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("Content-Type: application/json")
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def json(self, status: int = 200, value: object = CHAT, *headers: str) -> None:
        await self.answer(status, json.dumps(value).encode(), *headers)

    async def events(self) -> None:
        """The head of a stream."""
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """RST instead of FIN."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def gone(self) -> None:
        """Until the peer has closed."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError:
            pass


Script = Callable[[Wire, Received], Awaitable[None]]


async def chats(wire: Wire, received: Received) -> None:
    """Answers every chat request, streamed or not."""
    if not received.json().get("stream"):
        await wire.json()
        return
    await wire.events()
    for _ in range(3):
        await wire.chunk(delta())
    await wire.chunk(DONE)
    await wire.end()


@dataclass
class Upstream:
    """Listens while the block lasts. `script` may be changed at any time."""

    script: Script = chats
    connections: int = 0
    """Accepted, ever."""
    open: int = 0
    received: list[Received] = field(default_factory=list[Received])
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """As a killed process: the port closes, connections are reset."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def closed(self) -> None:
        """Until no connection is open."""

        async with asyncio.timeout(10):
            while self.open:
                self._ended.clear()
                await self._ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._converse(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self.open -= 1
            self._ended.set()
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire, served = Wire(reader, writer), 0
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            received = Received(head, body, served, len(self.received))
            self.received.append(received)
            served += 1
            await self.script(wire, received)


@asynccontextmanager
async def upstreams(*scripts: Script) -> AsyncGenerator[list[Upstream], None]:
    """Several at once."""
    started = [await Upstream(script).__aenter__() for script in scripts]
    try:
        yield started
    finally:
        for each in started:
            await each.stop()
