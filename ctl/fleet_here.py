"""The fleet that `flotilla up` holds: its programs are watched while anything is waited for."""

import math
import os
import shlex
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import TypeVar

from ctl.failure import Exit, Failure
from ctl.log_files import hold
from ctl.progress import Progress
from ctl.supervise import Child, next_signal, tend
from services.runtime.files import unusable

T = TypeVar("T")

POLL_SECONDS = 0.2
ENDS_TOO_OFTEN = 3
BAD_SETTINGS = 2
"""Exit code of a program that refuses its configuration: starting it again changes nothing."""


class Stopped(Exception):
    """A signal asked for the end."""


class FleetHere:
    """Programs by name. `tend` runs in every wait, so nothing is watched by a second thread."""

    def __init__(self, programs: dict[str, Child], progress: Progress) -> None:
        self.programs = programs
        self.progress = progress
        self.starting = True
        """While it starts, a program that keeps ending ends everything."""

    def until(self, ask: Callable[[], T | None]) -> T:
        """Ask until there is an answer. Raises Stopped at a signal."""
        while (answer := ask()) is None:
            self.turn()
        return answer

    def turn(self, seconds: float = POLL_SECONDS) -> None:
        """Let time pass, no more than until a program is due, and look after the programs."""
        found = next_signal(min(seconds, self._until_due(time.monotonic())))
        if found is not None and found is not signal.SIGCHLD:
            raise Stopped
        tend(list(self.programs.values()), time.monotonic(), self._ended)
        for child in self.programs.values():
            hold(child.log)

    def _until_due(self, now: float) -> float:
        """Seconds until the first program that waits to be started; infinity: none waits."""
        waits = [child.due - now for child in self.programs.values() if child.process is None]
        return max(0.0, min(waits, default=math.inf))

    def _ended(self, child: Child, code: int) -> None:
        told = f"{child.name} ended with {code}"
        if self.starting and (child.ends >= ENDS_TOO_OFTEN or code == BAD_SETTINGS):
            raise Failure(
                Exit.NO,
                "program_ended",
                f"{told}, {child.ends} times in a row" if child.ends > 1 else told,
                details=[f"  {child.name} | {line}" for line in child.last_lines()],
                steps=[f"less {shlex.quote(str(child.log))}"],
            )
        self.progress.line(f"{told}; starting it again (its log: {child.log})")


@contextmanager
def usable(data: Path) -> Generator[None]:
    """What the disk refuses inside is told of the data folder."""
    try:
        yield
    except OSError as error:
        raise Failure(
            Exit.USAGE,
            "data_unusable",
            unusable(data, error),
            steps=["flotilla up --data OTHER"],
        ) from error


@contextmanager
def locked(data: Path) -> Generator[None]:
    """Only one `up` may hold a data folder; the lock goes with the process, however it ends."""
    with usable(data):
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "up.lock").open("a+")
    with lock as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Failure(
                Exit.REFUSED,
                "already_up",
                f"another `flotilla up` (pid {file.read().strip() or '?'}) runs with {data}",
                steps=[
                    f"flotilla status --data {shlex.quote(str(data))}",
                    "flotilla up --data OTHER --port PORT",
                ],
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
