"""Child processes of `flotilla up`: started, watched, started again when they end, stopped in order.

One thread, one clock, no handlers: the caller waits in `signal.sigtimedwait` (a child's end wakes
it) and then calls `tend`. A child dies with its parent (PR_SET_PDEATHSIG); should one not, its
identity stands in a file and the next `up` ends it. Children are in groups of their own, so that a
Ctrl-C at the terminal reaches only the parent, which stops them in order.
"""

import ctypes
import os
import random  # noqa: TID251  # A shell: pauses of restarts need no repeating.
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.documents import ProcessIdentity, RestartPolicy
from services.fleet.restarts import forgotten, pause
from services.runtime import proc

POLICY = RestartPolicy(first_seconds=0.5, longest_seconds=30.0, healthy_seconds=60.0)
LOG_BYTES = 16 << 20
"""A log over this size is put aside at the next start."""
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
WATCHED = ENDING | {signal.SIGCHLD}
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Child:
    """One program: how it is started, and how it fares."""

    name: str
    command: Sequence[str]
    log: Path
    identity_file: Path
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    process: subprocess.Popen[bytes] | None = None
    ends: int = 0
    """In a row."""
    started: float = 0.0
    due: float = 0.0
    chance: random.Random = field(default_factory=random.Random)

    def start(self, now: float) -> None:
        """Spawn it, its output into its log."""
        _put_aside(self.log)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # An argv that `up` composed.
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environ},
                process_group=0,
                preexec_fn=_prepared(os.getpid()),
            )
        self.started = now
        identity = proc.identify(self.process.pid)
        if identity is not None:
            self.identity_file.write_bytes(msgspec.json.encode(identity))

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def ended(self, now: float) -> int | None:
        """The exit code, once, when it has ended; then it is due again after a pause."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return None
        self._forget()
        self.ends = 1 if forgotten(POLICY, now - self.started) else self.ends + 1
        self.due = now + pause(POLICY, self.ends, self.chance)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> int | None:
        """Make sure that it is gone. The exit code of a process that was there."""
        if self.process is None:
            return None
        self.process.kill()
        code = self.process.wait()
        self._forget()
        return code

    def _forget(self) -> None:
        self.process = None
        self.identity_file.unlink(missing_ok=True)

    def last_lines(self, count: int = 5) -> list[str]:
        """The end of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 8192))
                return log.read().decode(errors="replace").splitlines()[-count:]
        except OSError:
            return []


def tend(children: Sequence[Child], now: float, tell: Callable[[Child, int], None]) -> None:
    """Notice what ended (told once each), start what is due."""
    for child in children:
        code = child.ended(now)
        if code is not None:
            tell(child, code)
        if child.process is None and now >= child.due:
            child.start(now)


def watch_signals() -> None:
    """From here on the signals in WATCHED arrive through `next_signal` alone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def next_signal(timeout_seconds: float) -> signal.Signals | None:
    """The next of WATCHED, or None when none comes in time."""
    found = signal.sigtimedwait(WATCHED, timeout_seconds)
    return None if found is None else signal.Signals(found.si_signo)


def _prepared(parent: int) -> Callable[[], None]:
    """What a child does before it becomes its program."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(0)  # The parent went before the line above.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    return prepare


def _put_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def end_leftovers(folder: Path, grace_seconds: float) -> list[str]:
    """End what an earlier parent left behind, never a stranger that got its pid. Returns the names."""
    left: dict[str, ProcessIdentity] = {}
    for file in sorted(folder.glob("*.json")):
        identity = _read_identity(file)
        if identity is not None and proc.is_alive(identity):
            left[file.stem] = identity
        file.unlink(missing_ok=True)
    for number, wait in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, grace_seconds)):
        _signal_and_wait(list(left.values()), number, wait)
    return list(left)


def _read_identity(file: Path) -> ProcessIdentity | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ProcessIdentity)
    except (OSError, msgspec.DecodeError):
        return None


def _signal_and_wait(
    processes: Sequence[ProcessIdentity], number: signal.Signals, seconds: float
) -> None:
    alive = [each for each in processes if proc.send(each, number)]
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(proc.is_alive, alive)):
        time.sleep(0.05)
