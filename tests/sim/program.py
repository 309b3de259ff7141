"""What all simulated programs share: a link to NATS that may be down, answers that may be lost, a log that
comes late and in order."""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from tests.sim.kernel import Process, Steps
from tests.sim.log import Message
from tests.sim.world import World

T = TypeVar("T")

ANSWER_SECONDS: Final = 2.0


class Lost:
    """No answer came: what was asked for may have been done."""


LOST: Final = Lost()


class Program:
    """One start of a program. `position`: LOG's sequence up to which it was told."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.position = 0
        self.began = world.now
        self._link_up = True

    def start(self, steps: Steps) -> None:
        self.process = Process(self.world.kernel, steps)
        self.world.programs.append(self)

    @property
    def runs(self) -> bool:
        """Alive, and given processor time."""
        return self.process is not None and self.process.alive and not self.process.paused

    @property
    def connected(self) -> bool:
        return self._link_up and self.world.log.up

    @property
    def speaks(self) -> bool:
        """What it says reaches others."""
        return self.runs and self.connected

    def set_link(self, up: bool) -> None:
        """Cut from NATS, or back."""
        self.before_change()
        self._link_up = up
        self.world.changed()

    def before_change(self) -> None:
        """Its link, or that of all, changes now."""

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        if self in self.world.programs:
            self.world.programs.remove(self)
        self.world.changed()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()
        self.world.changed()

    def go_on(self) -> None:
        if self.process is not None:
            self.process.go_on()
        self.world.changed()
        self.pump()

    def wake(self) -> None:
        if self.process is not None:
            self.process.wake()

    def ask(self, serve: Callable[[], T]) -> Generator[float, None, T | Lost]:
        """A request and its answer; whether it is served, and whether the answer comes, is the link's."""
        answer: list[T] = []
        self.world.request(self, serve, answer)
        deadline = self.world.now + ANSWER_SECONDS
        while not answer:
            if self.world.now >= deadline:
                return LOST
            yield deadline - self.world.now
        return answer[0]

    def pump(self) -> None:
        """What stands in the log, and was not told yet, comes now."""
        if not self.speaks:
            return
        fresh = self.world.log.messages[self.position :]
        if fresh:
            self.position = fresh[-1].sequence
            self.told(fresh)

    def told(self, messages: list[Message]) -> None:
        """What it makes of them."""
        raise NotImplementedError

    def last_beat(self) -> float | None:
        """When it beat last, if it beats now: once a second from its start on. None: it does not."""
        if not self.speaks:
            return None
        return self.began + float(int(self.world.now - self.began))
