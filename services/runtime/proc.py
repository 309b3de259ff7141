# ruff: noqa: PTH208, PTH115 - plain strings: these run over every process of the machine.
"""Processes as /proc shows them: who is who, who belongs to which session, who listens where.

A pid alone names nobody: pids are used again within minutes. An identity is boot id, pid and start
time; a signal is sent through a pidfd that was opened before the start time was compared.

Everything here blocks; what looks at every process of the machine belongs in a thread where others
wait. How it fails: what may not be read (another user's, under hidepid) counts as not there.
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
    text = _read(PROC / str(pid) / "stat").decode(errors="replace")
    fields = text.rpartition(")")[2].split()  # The name before it may hold anything.
    if not fields:
        return None
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def name(pid: int) -> str:
    """Of its program, cut by the kernel after 15 bytes; empty: not known."""
    return _read(PROC / str(pid) / "comm").decode(errors="replace").strip()


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
    for pid in _pids():
        if (found := stat(pid)) is not None and found.alive:
            yield found


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir(PROC) if entry.isdecimal()]


def environ(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty where it may not be read."""
    raw = _read(PROC / str(pid) / "environ")
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
    for pid in _children(leader.pid):
        found = stat(pid)
        if found is not None and found.alive and found.session == leader.pid:
            return found.identity(leader.boot_id)
    return None


def _children(pid: int) -> list[int]:
    """Of the kernel's own list, where it keeps one; else of a look at everybody."""
    tasks = PROC / str(pid) / "task"
    lists = [tasks / task / "children" for task in _entries(tasks)]
    if any(path.exists() for path in lists):
        return [int(child) for path in lists for child in _read(path).split()]
    return [each.pid for each in everybody() if each.parent == pid]


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
    return listener(port, pids) is not None


def listener(port: int, pids: Iterable[int] | None = None) -> int | None:
    """Who of these, or of all processes, listens on the port; None: nobody that can be seen."""
    inodes = {inode for state, inode in _sockets(port) if state == _LISTEN}
    if not inodes:
        return None
    among = _pids() if pids is None else pids
    return next((pid for pid in among if not inodes.isdisjoint(_socket_inodes(pid))), None)


def connections(port: int) -> int:
    """Established connections to a local port."""
    return sum(state == _ESTABLISHED for state, _ in _sockets(port))


def _sockets(port: int) -> Iterator[tuple[str, str]]:
    """State and inode of every TCP socket with this local port."""
    for table in ("tcp", "tcp6"):
        for line in _read(PROC / "net" / table).decode().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[3], fields[9]


def _socket_inodes(pid: int) -> Iterator[str]:
    folder = PROC / str(pid) / "fd"
    for descriptor in _entries(folder):
        try:
            target = os.readlink(folder / descriptor)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def work_done(pids: Iterable[int]) -> int:
    """A number that grows while the processes read or map a model, in MiB."""
    return sum(_read_bytes(pid) + _peak_bytes(pid) for pid in pids) >> 20


def _read_bytes(pid: int) -> int:
    return sum(_numbers(PROC / str(pid) / "io", ("rchar:", "read_bytes:")))


def _peak_bytes(pid: int) -> int:
    return 1024 * sum(_numbers(PROC / str(pid) / "status", ("VmHWM:",)))


def _numbers(path: Path, names: tuple[str, ...]) -> Iterator[int]:
    for line in _read(path).decode(errors="replace").splitlines():
        if line.startswith(names):
            yield int(line.split()[1])


def _read(path: Path) -> bytes:
    """Empty: it is gone, or may not be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
