"""The fleet that `flotilla up` holds: its programs are watched while anything is waited for."""

import os
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
        """Let time pass, and look after the programs."""
        found = next_signal(seconds)
        if found is not None and found is not signal.SIGCHLD:
            raise Stopped
        tend(list(self.programs.values()), time.monotonic(), self._ended)
        for child in self.programs.values():
            hold(child.log)

    def _ended(self, child: Child, code: int) -> None:
        told = f"{child.name} ended with {code}"
        if self.starting and (child.ends >= ENDS_TOO_OFTEN or code == BAD_SETTINGS):
            raise Failure(
                Exit.NO,
                "program_ended",
                f"{told}, {child.ends} times in a row" if child.ends > 1 else told,
                details=[f"  {child.name} | {line}" for line in child.last_lines()],
                steps=[f"less {child.log}"],
            )
        self.progress.line(f"{told}; starting it again (its log: {child.log})")


@contextmanager
def locked(data: Path) -> Generator[None]:
    """Only one `up` may hold a data folder; the lock goes with the process, however it ends."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "up.lock").open("a+") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Failure(
                Exit.REFUSED,
                "already_up",
                f"another `flotilla up` (pid {file.read().strip() or '?'}) runs with {data}",
                steps=[f"flotilla status --data {data}", "flotilla up --data OTHER --port PORT"],
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
