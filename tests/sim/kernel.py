"""Virtual time: one heap of what is due, and processes that sleep and are woken. Deterministic by its seed."""

import heapq
from collections.abc import Callable, Generator
from itertools import count
from random import Random

Steps = Generator[float, None, None]
"""A process: it yields how many virtual seconds it sleeps; whoever wakes it ends the sleep early."""


class Kernel:
    """Runs what is due, in the order of virtual time; of what is due at one moment, in a drawn order."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.steps = 0
        self.random = Random(seed)
        self._due: list[tuple[float, float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it that much later."""
        entry = (self.now + seconds, self.random.random(), next(self._numbers), call)
        heapq.heappush(self._due, entry)

    def run(self, until: float) -> None:
        """All that is due by then."""
        while self._due and self._due[0][0] <= until:
            self.now, _, _, call = heapq.heappop(self._due)
            self.steps += 1
            call()
        self.now = until


class Process:
    """One running program. `kill` ends it where it stands; `pause` keeps it from every next step."""

    def __init__(self, kernel: Kernel, steps: Steps) -> None:
        self._kernel = kernel
        self._steps = steps
        self._sleep = 0
        self.alive = True
        self.paused = False
        self._held = False
        self._resume(0.0)

    def _resume(self, seconds: float) -> None:
        self._sleep += 1
        sleep = self._sleep
        self._kernel.after(seconds, lambda: self._step(sleep))

    def _step(self, sleep: int) -> None:
        if not self.alive or sleep != self._sleep:
            return
        if self.paused:
            self._held = True
            return
        try:
            self._resume(next(self._steps))
        except StopIteration:
            self.alive = False

    def wake(self) -> None:
        """It need not sleep on."""
        if self.alive and not self._held:
            self._resume(0.0)

    def kill(self) -> None:
        self.alive = False
        self._steps.close()

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        if self._held:
            self._held = False
            self._resume(0.0)
