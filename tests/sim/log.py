"""What JetStream promises of LOG and STATE, and no more: one order, guards, one answer a write, or none."""

from collections.abc import Sequence

from msgspec import Struct

from schemas import subjects
from services.log.append import Sealed


class Message(Struct, frozen=True, gc=False):
    """As LOG holds it."""

    sequence: int
    subject: str
    payload: bytes
    stamp: float
    """Seconds since 1970, the server's clock."""


class Log:
    """`up` False: no request arrives, and no answer comes."""

    def __init__(self, began: float) -> None:
        self.messages: list[Message] = []
        self.up = True
        self._began = began
        self._last: dict[str, int] = {}
        self._ids: dict[str, int] = {}

    @property
    def head(self) -> int:
        return len(self.messages)

    def last(self, subject: str) -> Message | None:
        """The newest message of a subject."""
        found = self._last.get(subject)
        return None if found is None else self.messages[found - 1]

    def state(self) -> list[Message]:
        """The newest message of each state subject, in LOG's order."""
        newest = [s for subject, s in self._last.items() if subject.startswith(subjects.STATE_ROOT)]
        return [self.messages[sequence - 1] for sequence in sorted(newest)]

    def write(self, event: Sealed, expected: int, now: float) -> int | None:
        """One event. Its sequence; None: another stands there than was expected."""
        if event.id in self._ids:
            return self._ids[event.id]
        if self._last.get(event.subject, 0) != expected:
            return None
        return self._store(event, now)

    def append(self, batch: Sequence[Sealed], fence: int, now: float) -> int | None:
        """All of a batch or nothing. Its last sequence; None: fenced."""
        if all(event.id in self._ids for event in batch):
            return self._ids[batch[-1].id]
        if self._last.get(subjects.CONTROL_EPOCH, 0) != fence:
            return None
        return [self._store(event, now) for event in batch][-1]

    def _store(self, event: Sealed, now: float) -> int:
        sequence = self.head + 1
        message = Message(sequence, event.subject, event.payload, self._began + now)
        self.messages.append(message)
        self._last[event.subject] = self._ids[event.id] = sequence
        return sequence
