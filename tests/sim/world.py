"""Everything there is: the log, the machines, the programs, what happened, and what was seen of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from services.log.append import Sealed
from tests.builders import NOW
from tests.sim.kernel import Kernel
from tests.sim.log import Log, Message

if TYPE_CHECKING:
    from tests.sim.agents import Machine
    from tests.sim.program import Program

T = TypeVar("T")

LATENCY_SECONDS = (0.001, 0.05)


class Watcher(Protocol):
    """Looks at each message as it is stored."""

    def stored(self, message: Message) -> None: ...


class Violation(AssertionError):
    """An invariant does not hold."""


class World:
    """One schedule, from one seed."""

    def __init__(self, seed: int) -> None:
        self.kernel = Kernel(seed)
        self.random = self.kernel.random
        self.log = Log(NOW)
        self.programs: list[Program] = []
        self.machines: dict[str, Machine] = {}
        self.watchers: list[Watcher] = []
        self.seen: Counter[str] = Counter()
        """What this schedule came past: a run that never met anything proves nothing."""
        self.passes = 0
        """Decisions made."""
        self.lost_answers = 0.0
        """Share of answers that do not come."""

    @property
    def now(self) -> float:
        return self.kernel.now

    @property
    def wall(self) -> float:
        return NOW + self.kernel.now

    def latency(self) -> float:
        return self.random.uniform(*LATENCY_SECONDS)

    def check(self, true: bool, what: str) -> None:
        if not true:
            raise Violation(f"at {self.now:.3f} s, log {self.log.head}: {what}")

    def request(self, program: Program, serve: Callable[[], T], answer: list[T]) -> None:
        """There and back, each way only while the link is up."""

        def arrives() -> None:
            if not program.connected:
                return
            head = self.log.head
            found = serve()
            self._store(head)
            if self.random.random() >= self.lost_answers:
                self.kernel.after(self.latency(), lambda: returns(found))
            else:
                self.seen["an answer was lost"] += 1

        def returns(found: T) -> None:
            if program.connected:
                answer.append(found)
                program.wake()

        if program.connected:
            self.kernel.after(self.latency(), arrives)

    def put(self, event: Sealed, expected: int) -> int | None:
        """Written by nobody's link: the world's own beginning."""
        head = self.log.head
        written = self.log.write(event, expected, self.now)
        self._store(head)
        return written

    def _store(self, head: int) -> None:
        fresh = self.log.messages[head:]
        for message in fresh:
            for watcher in self.watchers:
                watcher.stored(message)
        if fresh:
            for program in self.programs:
                self.kernel.after(self.latency(), program.pump)

    def set_nats(self, up: bool) -> None:
        for program in list(self.programs):
            program.before_change()
        self.log.up = up
        self.changed()

    def changed(self) -> None:
        """Somebody came, went, or was cut off: everybody looks again."""
        for program in list(self.programs):
            self.kernel.after(self.latency(), program.pump)
            program.wake()
