"""Engine processes: start one under its shim, wait for its end, kill its session.

Engines outlive the agent: each has its own session, its output in a file, its exit code in another.
How it fails:
- The agent dies between the start and the state file: the engine is found by its mark.
- The shim is killed: the engine serves on; its exit code will be unknown.
- A process cannot be killed (stuck in the kernel): `kill_session` goes on trying and does not return.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from schemas.documents import ProcessIdentity
from services.agent.shard import Life, Process
from services.runtime import proc

SHIM = Path(__file__).with_name("shim.py")
REPLICA, INCARNATION, AGENT = "FLOTILLA_REPLICA", "FLOTILLA_INCARNATION", "FLOTILLA_AGENT"
OWN_PREFIX = "FLOTILLA_"
"""The agent's own variables; the secrets of all engines are among them."""

FIND_TRIES = 100
FIND_PAUSE_SECONDS = 0.01
SHIM_PATIENCE_SECONDS = 2.0
"""For writing the exit code and leaving."""
KILL_PAUSE_SECONDS = 0.02
LONGEST_KILL_PAUSE_SECONDS = 1.0

TERM = signal.SIGTERM
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def mark(life: Life, data: Path) -> dict[str, str]:
    """What every process of this run carries in its environment."""
    incarnation = f"{life.order.attempt}.{life.run}"
    return {REPLICA: life.replica, INCARNATION: incarnation, AGENT: str(data)}


async def spawn(argv: Sequence[str], env: Mapping[str, str], log: Path, exit_file: Path) -> Process:
    """Start the command under a shim. Raises OSError."""
    command = [sys.executable, "-S", "-E", str(SHIM), str(exit_file), *argv]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(OWN_PREFIX)}
    pid = _spawn(command, {**inherited, "PYTHONUNBUFFERED": "1", **env}, log)
    leader = proc.identify(pid)
    if leader is None:
        raise ProcessLookupError("the shim was gone at once")  # Reaped by a stranger, if ever.
    return Process(leader=leader, engine=await _engine_of(leader))


def _spawn(command: list[str], env: Mapping[str, str], log: Path) -> int:
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return os.posix_spawn(
            command[0],
            command,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
            setsigdef=_RESET,
        )
    finally:
        os.close(output)


async def _engine_of(leader: ProcessIdentity) -> ProcessIdentity:
    """The shim itself where its child is not to be seen: it ended at once."""
    for _ in range(FIND_TRIES):
        if (engine := proc.child_of(leader)) is not None:
            return engine
        if not proc.is_alive(leader):
            break
        await asyncio.sleep(FIND_PAUSE_SECONDS)
    return leader


def find(marked: Mapping[str, str]) -> Process | None:
    """The session of a run whose start no state file saw."""
    for each in proc.everybody():
        if each.pid == each.session and marked.items() <= proc.environ(each.pid).items():
            leader = each.identity(proc.boot_id())
            return Process(leader=leader, engine=proc.child_of(leader) or leader)
    return None


def environ(running: Process) -> dict[str, str]:
    """What the run's processes were started with, from one of them that lives; empty: none does."""
    for each in (running.engine, running.leader):
        found = proc.environ(each.pid)
        if found and proc.is_alive(each):  # Asked after: so it was not a stranger's.
            return found
    return {}


async def ended(process: ProcessIdentity) -> None:
    """Returns once it has ended, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        if proc.is_alive(process):
            loop.add_reader(descriptor, readable.set)
            await readable.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def kill_session(leader: ProcessIdentity, marked: Mapping[str, str]) -> None:
    """Returns once no process of the session is left. The shim may first write its engine's exit."""
    loop = asyncio.get_running_loop()
    pause, shim_until = KILL_PAUSE_SECONDS, loop.time() + SHIM_PATIENCE_SECONDS
    while left := await asyncio.to_thread(proc.members, leader, marked):
        for each in left:
            if each.pid != leader.pid or loop.time() >= shim_until:
                proc.send(each.identity(leader.boot_id), signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(pause * 1.2, LONGEST_KILL_PAUSE_SECONDS)
    _reap(leader.pid)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # An adopted engine's shim is another's child.
        os.waitpid(pid, os.WNOHANG)


def exit_code(exit_file: Path) -> int | None:
    """What the shim wrote; None: nothing."""
    try:
        return int(json.loads(exit_file.read_bytes())["rc"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
