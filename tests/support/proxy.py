"""A TCP proxy in front of a nats-server that can lose or repeat single messages, fall silent, or be shut.

To the client, messages may be lost (a write goes in while its answer does not come) or come twice.
From the client, they may be lost too (a write that never goes in).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct


class Frame(Struct, frozen=True):
    """One message."""

    subject: str
    reply: str
    body: bytes
    """Headers, if any, and payload."""


class Proxy:
    """`drop` and `swallow` say which messages are lost. `cut` ends all links; new ones may be made."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.shut = False
        """No link comes about."""
        self.mute = False
        """Links stay open, and nothing at all comes through, either way."""
        self.drop: Callable[[Frame], bool] = lambda _: False
        """Of those to the client."""
        self.swallow: Callable[[Frame], bool] = lambda _: False
        """Of those from the client."""
        self.repeat: Callable[[Frame], bool] = lambda _: False
        """Which messages come to the client twice."""
        self.change: Callable[[Frame], bytes | None] = lambda _: None
        """What comes to the client in place of headers and payload; None: what was sent."""
        self.dropped: list[Frame] = []
        self._upstream = port
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()

    async def cut(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.shut:
            writer.close()
            return
        self._writers.append(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.close()
            return
        self._writers.append(up_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, up_writer))
                group.create_task(self._filter(up_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # One side has gone.
        finally:
            writer.close()
            up_writer.close()

    async def _filter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = line.split()
            if words and words[0] in (b"MSG", b"HMSG"):
                body = await reader.readexactly(int(words[-1]) + 2)
                frame = _frame(words, body)
                if self.drop(frame):
                    self.dropped.append(frame)
                    continue
                line += body
                if (other := self.change(frame)) is not None:
                    sizes = b"%d %d\r\n" % (other.index(b"\r\n\r\n") + 4, len(other))
                    line = b" ".join([b"HMSG", *words[1:3], sizes + other + b"\r\n"])
                line += line if self.repeat(frame) else b""
            if self.mute:
                continue
            writer.write(line)
            await writer.drain()
        raise ConnectionResetError

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = line.split()
            if words and words[0] in (b"PUB", b"HPUB"):
                body = await reader.readexactly(int(words[-1]) + 2)
                if self.swallow(_sent(words, body)):
                    continue
                line += body
            if self.mute:
                continue
            writer.write(line)
            await writer.drain()
        raise ConnectionResetError


NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"
"""For `change`: a get is answered by a replica that has not come so far."""


def _frame(words: list[bytes], body: bytes) -> Frame:
    """`MSG subject sid [reply] size` or `HMSG subject sid [reply] header-size size`."""
    sizes = 1 if words[0] == b"MSG" else 2
    reply = words[3].decode() if len(words) == 4 + sizes else ""
    return Frame(words[1].decode(), reply, body[:-2])


def _sent(words: list[bytes], body: bytes) -> Frame:
    """`PUB subject [reply] size` or `HPUB subject [reply] header-size size`."""
    sizes = 1 if words[0] == b"PUB" else 2
    reply = words[2].decode() if len(words) == 3 + sizes else ""
    return Frame(words[1].decode(), reply, body[:-2])


def up_to(count: int, wanted: Callable[[Frame], bool]) -> Callable[[Frame], bool]:
    """For `drop`: the first `count` messages that are wanted."""
    left = [None] * count

    def drop(frame: Frame) -> bool:
        if left and wanted(frame):
            left.pop()
            return True
        return False

    return drop
