# ruff: noqa: PTH208, PTH115 - plain strings: these run over every process of the machine.
"""Processes as /proc shows them: who is who, who belongs to which session, who listens where.

A pid alone names nobody: pids are used again within minutes. An identity is boot id, pid and start
time; a signal is sent through a pidfd that was opened before the start time was compared.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from schemas.documents import ProcessIdentity

PROC = Path("/proc")
_DEAD = "ZX"
_LISTEN, _ESTABLISHED = "0A", "01"


class Stat(Struct, frozen=True):
    """Of /proc/<pid>/stat, what is used here."""

    pid: int
    state: str
    parent: int
    session: int
    start_ticks: int

    def identity(self, boot: str) -> ProcessIdentity:
        """Under this boot id."""
        return ProcessIdentity(boot_id=boot, pid=self.pid, start_ticks=self.start_ticks)

    @property
    def alive(self) -> bool:
        """A zombie is dead: it holds nothing but its pid."""
        return self.state not in _DEAD


@cache
def boot_id() -> str:
    """Of this start of the machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> Stat | None:
    """None: there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # The name before it may hold anything.
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def identify(pid: int) -> ProcessIdentity | None:
    """None: there is no such process."""
    found = stat(pid)
    if found is None:
        return None
    return found.identity(boot_id())


def is_alive(process: ProcessIdentity) -> bool:
    """The very process, not a later one under its pid."""
    found = stat(process.pid)
    return found is not None and found.alive and _is(process, found)


def _is(process: ProcessIdentity, found: Stat) -> bool:
    return found.start_ticks == process.start_ticks and process.boot_id == boot_id()


def everybody() -> Iterator[Stat]:
    """All processes that live."""
    for name in os.listdir(PROC):
        if name.isdecimal() and (found := stat(int(name))) is not None and found.alive:
            yield found


def environ(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty where it may not be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in raw.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def members(leader: ProcessIdentity, mark: Mapping[str, str]) -> list[Stat]:
    """Live processes of the leader's session, the leader last.

    While the leader lives, the session's id is ours. Under another process with its pid all are
    strangers. With nobody under its pid, those that carry our mark in their environment are ours.
    """
    if leader.boot_id != boot_id():
        return []
    found = stat(leader.pid)
    if found is not None and not _is(leader, found):
        return []
    session = [each for each in everybody() if each.session == leader.pid]
    if found is None:
        session = [each for each in session if mark.items() <= environ(each.pid).items()]
    return sorted(session, key=lambda each: each.pid == leader.pid)


def child_of(leader: ProcessIdentity) -> ProcessIdentity | None:
    """The engine: the shim's only child."""
    for each in everybody():
        if each.parent == leader.pid and each.session == leader.pid:
            return each.identity(leader.boot_id)
    return None


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal this very process; False: it is gone. A stranger is never signalled."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether one of the processes listens on the port, on any address."""
    inodes = {inode for state, inode in _sockets(port) if state == _LISTEN}
    return any(_socket_inodes(pid) & inodes for pid in pids) if inodes else False


def connections(port: int) -> int:
    """Established connections to a local port."""
    return sum(state == _ESTABLISHED for state, _ in _sockets(port))


def _sockets(port: int) -> Iterator[tuple[str, str]]:
    """State and inode of every TCP socket with this local port."""
    for table in ("tcp", "tcp6"):
        path = PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[3], fields[9]


def _socket_inodes(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        descriptors = os.listdir(PROC / str(pid) / "fd")
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(PROC / str(pid) / "fd" / descriptor)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def work_done(pids: Iterable[int]) -> int:
    """A number that grows while the processes read or map a model, in MiB."""
    return sum(_read_bytes(pid) + _peak_bytes(pid) for pid in pids) >> 20


def _read_bytes(pid: int) -> int:
    return sum(_numbers(PROC / str(pid) / "io", ("rchar:", "read_bytes:")))


def _peak_bytes(pid: int) -> int:
    return 1024 * sum(_numbers(PROC / str(pid) / "status", ("VmHWM:",)))


def _numbers(path: Path, names: tuple[str, ...]) -> Iterator[int]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        if line.startswith(names):
            yield int(line.split()[1])
