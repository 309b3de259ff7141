"""What programs say of themselves once a second, believed only of who may say it.

NATS pins who may speak under a subject, never what he says there: a name that does not give that
subject is another's. What is not believed is dropped, counted, and told of once for each subject.
"""

from collections.abc import Callable
from typing import TypeVar

import structlog
from msgspec import DecodeError

from schemas import codec
from services.log.message import Message

MOST_TOLD = 100
"""Subjects that are told of: anybody may make up more."""

T = TypeVar("T")

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Spoken:
    """Read by one program."""

    def __init__(self) -> None:
        self.dropped = 0
        """Messages that were not believed."""
        self._told: set[str] = set()

    def read(self, message: Message, kind: type[T], subject: Callable[[T], str]) -> T | None:
        """`subject`: the one under which the sender that is named speaks. None: it is dropped."""
        try:
            said = codec.decode(message.payload, kind)
            if subject(said) == message.subject:
                return said
            reason = f"its sender speaks as {subject(said)}"
        except DecodeError as error:
            reason = str(error)
        self.dropped += 1
        if message.subject not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(message.subject)
            log.warning("spoken.dropped", subject=message.subject, reason=reason)
        return None
