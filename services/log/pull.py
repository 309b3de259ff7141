"""One ephemeral pull consumer: messages of a stream in order, or a reason why that ended.

Both readers of whole streams (Tail, read_state) are built on it. It believes in nothing: the
consumer's own sequence must rise by one, something must come with every beat, and messages that are
said to be there must come before the second beat. Any doubt ends it (Ended), and the reader makes
another one from where it stands. The consumer is deleted when its reader leaves it.
"""

import asyncio
import secrets
from collections import deque
from typing import Any

from msgspec import Struct

from schemas import codec
from services.log import api
from services.log.connect import Connection
from services.log.message import Message, status

BATCH = 1000
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 2.5 * BEAT_SECONDS
EXPIRES_SECONDS = 30.0
ABANDONED_SECONDS = 30.0
"""The server removes a consumer that nobody has pulled from for so long: of a reader that was killed."""
IDLE_BEATS = 2
"""In a row, without a message: what is said to be there does not come."""
COUNTS = 3
"""Consumers that a read makes at most, one after the other, as each counts what is not there."""
_SECOND = 1_000_000_000

EPHEMERAL: dict[str, Any] = {
    "ack_policy": "none",
    "mem_storage": True,
    "num_replicas": 1,
    "inactive_threshold": int(ABANDONED_SECONDS * _SECOND),
}
_BEAT = "100"
_OVER = ("404", "408")
"""The request for messages has ended; another one goes on where it did."""


class Ended(Exception):
    """This consumer is not to be trusted any more, and why."""


class Miscounted(Ended):
    """The consumer is at its end, and says that messages are left: they were replaced meanwhile."""

    def __init__(self, pending: int) -> None:
        super().__init__(f"{pending} messages should be there and do not come")


class Created(Struct, frozen=True):
    """Of JetStream's answer, what is used here."""

    num_pending: int


class Position(Struct, frozen=True):
    """What the server says of a delivered message, read from its reply subject."""

    sequence: int
    """In the stream."""
    delivered: int
    """By this consumer, from 1."""
    stamp: float
    """When the stream stored it, in seconds."""
    pending: int
    """Messages of the stream that come after it."""


def position(reply: str) -> Position:
    """Read from the right: both forms of the subject end in the same words."""
    words = reply.rsplit(".", 5)
    return Position(int(words[-4]), int(words[-3]), int(words[-2]) / _SECOND, int(words[-1]))


async def delete(connection: Connection, stream: str, consumer: str) -> None:
    """Nobody waits for it: where it is lost, the consumer ends as an abandoned one."""
    await connection.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", b"")


class Pull:
    """Use as `async with`, which may raise ApiError or Unavailable; then `take` again and again."""

    def __init__(self, connection: Connection, stream: str, config: dict[str, Any]) -> None:
        self.pending = 0
        """Messages that the stream holds beyond those taken."""
        self._connection = connection
        self._stream = stream
        self._name = f"r{secrets.token_hex(8)}"
        self._inbox = f"{connection.inbox}.{self._name}"
        self._config = config
        self._arrived: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._lost = False
        self._delivered: int = 0
        self._idle_beats = 0
        self._left = 0
        """Messages that the server may still send without being asked again."""

    async def __aenter__(self) -> "Pull":
        verb = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        body = {
            "stream_name": self._stream,
            "config": self._config | EPHEMERAL | {"name": self._name},
        }
        self._connection.on_change.append(self._on_change)
        self._subscription = await self._connection.subscribe(self._inbox, self._on_message)
        try:
            self.pending = (await api.call(self._connection, verb, body, Created)).num_pending
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.on_change.remove(self._on_change)
        await self._subscription.close()
        await delete(self._connection, self._stream, self._name)

    async def take(self) -> list[Message]:
        """What has come, in order. Empty: nothing came for as long as a request lasts."""
        if self._left == 0:
            await self._ask()
        taken: list[Message] = []
        while not taken and self._left:
            await self._something()
            while self._arrived:
                message = self._arrived.popleft()
                if status(message):
                    self._heed(message)
                else:
                    self._count(message)
                    taken.append(message)
        return taken

    async def _ask(self) -> None:
        body = {
            "batch": BATCH,
            "expires": int(EXPIRES_SECONDS * _SECOND),
            "idle_heartbeat": int(BEAT_SECONDS * _SECOND),
        }
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        if not await self._connection.publish(verb, codec.encode(body), reply=self._inbox):
            raise Ended("connection lost")
        self._left = BATCH

    async def _something(self) -> None:
        self._wake.clear()
        if self._arrived:
            return
        if self._lost:
            raise Ended("connection lost")
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            raise Ended(f"nothing for {SILENCE_SECONDS:g} s, not even a beat") from None

    def _heed(self, message: Message) -> None:
        code = status(message)
        if code == _BEAT:
            if int(message.headers.get("Nats-Last-Consumer", self._delivered)) != self._delivered:
                raise Ended("a message was lost before a beat")
            self._idle_beats += 1
            if self.pending and self._idle_beats == IDLE_BEATS:
                raise Miscounted(self.pending)
        elif code in _OVER:
            self._left = 0
        else:
            raise Ended(f"{code} {message.headers.get('Description', '')}")

    def _count(self, message: Message) -> None:
        found = position(message.reply)
        if found.delivered != self._delivered + 1:
            raise Ended("a message was lost")
        self._delivered = found.delivered
        self.pending = found.pending
        self._idle_beats = 0
        self._left -= 1

    def _on_message(self, message: Message) -> None:
        self._arrived.append(message)
        self._wake.set()

    def _on_change(self, connected: bool) -> None:
        if not connected:
            self._lost = True
            self._wake.set()
