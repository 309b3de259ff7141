"""One request on its way: what a door hands over, where the answer goes, and what is known between."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from services.router import body, headers
from services.router.endpoints import Route, Target
from services.router.events import WholeEvents
from services.router.headers import Header
from services.router.openai import Forwarded


class ClientGone(Exception):
    """The client has closed its connection."""


class Request(Struct, frozen=True, gc=False):
    """What a door hands over."""

    target: str
    """Path and query, as the client sent them."""
    headers: Sequence[Header]
    body: bytes


class Sink(Protocol):
    """Where an answer goes. Methods that send raise ClientGone, and wait for a slow client."""

    async def start(
        self, status: int, headers: Sequence[Header], length: int | None, close: bool = False
    ) -> None:
        """Once. `length` None: the end is marked otherwise. `close`: the connection ends with it."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def end(self) -> None:
        """A proper end."""
        ...

    def cut(self) -> None:
        """End the connection so that nobody takes the answer for whole."""
        ...


class Exchange:
    """One request on its way."""

    __slots__ = (
        "asked",
        "began",
        "events",
        "id",
        "model",
        "request",
        "route",
        "sent",
        "sink",
        "target",
        "tried",
    )

    def __init__(
        self,
        request: Request,
        route: Forwarded,
        sink: Sink,
        asked: body.Asked,
        target: Target,
        began: float,
        identity: str,
    ) -> None:
        self.request = request
        self.route = route
        self.sink = sink
        self.asked = asked
        self.target = target
        self.model = target.model
        """As it was when the request was accepted."""
        self.began = began
        self.id = identity
        self.tried: list[Route] = []
        self.sent = False
        self.events: WholeEvents | None = None
        """Of an event stream, once one is coming."""

    @property
    def whole(self) -> bool:
        """The client has all of a stream."""
        return self.events is not None and self.events.done

    def passed(self, answered: Sequence[Header]) -> list[Header]:
        """What an engine's headers become for the client."""
        kept = headers.to_client(answered)
        if headers.first(kept, b"x-request-id") is None:
            kept.append((b"x-request-id", self.id.encode()))
        return kept
