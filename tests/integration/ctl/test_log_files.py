"""A log that a live process writes to."""

import signal
import subprocess
import sys
from pathlib import Path

from ctl.fleet_here import FleetHere
from ctl.log_files import LOG_BYTES, hold
from ctl.progress import Progress
from ctl.supervise import Child, watch_signals
from tests.support.waiting import blocking_until

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_a_log_over_its_limit_is_put_aside_while_its_program_goes_on_writing(
    tmp_path: Path,
) -> None:
    log = tmp_path / "thing.log"
    with (
        log.open("ab") as output,
        subprocess.Popen(
            [sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=output, text=True
        ) as program,
    ):
        assert program.stdin is not None

        def say(text: str) -> None:
            before = log.stat().st_size
            assert program.stdin is not None
            program.stdin.write(f"{text}\n")
            program.stdin.flush()
            blocking_until(lambda: log.stat().st_size > before)

        say("first")
        hold(log, limit_bytes=100)
        assert log.read_text() == "first\n"
        say("x" * 100)
        hold(log, limit_bytes=100)
        assert log.read_bytes() == b""
        say("second")
        assert log.read_text() == "second\n"  # From the beginning, without a hole.
    assert (tmp_path / "thing.log.1").read_text() == "first\n" + "x" * 100 + "\n"


def test_up_looks_after_its_programs_logs_at_every_turn(tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    script = f"import time; print('x' * {LOG_BYTES + 1}, flush=True); time.sleep(60)"
    child = Child("thing", [sys.executable, "-c", script], log, tmp_path / "thing.json")
    here = FleetHere({"thing": child}, Progress(live=False))

    def turned() -> bool:
        here.turn(0.05)
        return log.with_suffix(".log.1").exists()

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    watch_signals()
    try:
        blocking_until(turned)
    finally:
        child.kill()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert log.stat().st_size <= LOG_BYTES


def test_a_log_that_is_not_there_harms_nobody(tmp_path: Path) -> None:
    hold(tmp_path / "none.log")
    assert list(tmp_path.iterdir()) == []
