"""Real child processes: watched, started again, and gone when they should be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from ctl.supervise import Child, end_leftovers, tend
from schemas.documents import ProcessIdentity
from services.runtime import proc
from tests.support.waiting import blocking_until

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]
FAILS = [sys.executable, "-c", "raise SystemExit(7)"]


def a_child(folder: Path, command: list[str]) -> Child:
    return Child(
        name="thing",
        command=command,
        log=folder / "thing.log",
        identity_file=folder / "thing.json",
        environ={},
    )


def test_a_child_that_ends_is_told_once_and_started_again_after_a_growing_pause(
    tmp_path: Path,
) -> None:
    child, told = a_child(tmp_path, FAILS), list[int]()
    now, pauses = 0.0, list[float]()
    for run in range(1, 4):
        tend([child], now, lambda _child, code: told.append(code))
        assert child.process is not None
        child.process.wait()
        tend([child], now, lambda _child, code: told.append(code))
        assert (told, child.ends) == ([7] * run, run)
        pauses.append(child.due - now)
        tend([child], child.due - 0.01, lambda _child, code: told.append(code))
        assert child.process is None
        now = child.due
    assert 0 < pauses[0] < pauses[1] < pauses[2]


def test_ends_are_forgotten_after_a_minute_of_health(tmp_path: Path) -> None:
    child = a_child(tmp_path, FAILS)
    child.ends = 5
    child.start(now=0.0)
    assert child.process is not None
    child.process.wait()
    tend([child], 61.0, lambda _child, _code: None)
    assert child.ends == 1


def test_output_lands_in_the_log_and_its_end_can_be_read(tmp_path: Path) -> None:
    child = a_child(tmp_path, SLEEPS)
    child.start(now=0.0)
    blocking_until(lambda: child.last_lines() == ["up"])
    child.kill()
    assert not child.running
    assert not child.identity_file.exists()


PARENT = """
import sys, time
from pathlib import Path
from ctl.supervise import Child
folder = Path(sys.argv[1])
child = Child(name="thing", command={command!r}, log=folder / "thing.log",
              identity_file=folder / "thing.json", environ={{}})
child.start(0.0)
time.sleep(60)
"""


def orphaned(folder: Path, command: list[str]) -> ProcessIdentity:
    """A child whose parent was killed with -9."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(command=command), str(folder)])
    log = folder / "thing.log"
    try:
        blocking_until(lambda: log.exists() and log.read_text() == "up\n")
    finally:
        parent.kill()
        parent.wait()
    return msgspec.json.decode((folder / "thing.json").read_bytes(), type=ProcessIdentity)


def test_a_child_ends_with_its_parent_however_that_ended(tmp_path: Path) -> None:
    child = orphaned(tmp_path, SLEEPS)
    blocking_until(lambda: not proc.is_alive(child))


def test_a_child_that_outlived_its_parent_is_ended_by_the_next(tmp_path: Path) -> None:
    child = orphaned(tmp_path, STUBBORN)
    assert proc.is_alive(child)
    assert end_leftovers(tmp_path, grace_seconds=0.5) == ["thing"]
    assert not proc.is_alive(child)
    assert list(tmp_path.glob("*.json")) == []


def test_a_stranger_with_a_reused_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL) as stranger:
        try:
            real = proc.identify(stranger.pid)
            assert real is not None
            other = msgspec.structs.replace(real, start_ticks=real.start_ticks - 1)
            (tmp_path / "thing.json").write_bytes(msgspec.json.encode(other))
            assert end_leftovers(tmp_path, grace_seconds=0.5) == []
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_torn_identity_file_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "thing.json").write_bytes(b'{"boot_id": "x", "pi')
    assert end_leftovers(tmp_path, grace_seconds=0.5) == []


def test_a_child_has_its_own_group_and_gets_its_signals(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        child = a_child(tmp_path, SLEEPS)
        child.start(now=0.0)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    assert child.process is not None
    assert os.getpgid(child.process.pid) != os.getpgid(0)
    blocking_until(lambda: child.last_lines() == ["up"])
    child.terminate()
    assert child.process.wait(20) == -signal.SIGTERM
