"""`python -m services.agent.stop` with engines that do not end when they are asked."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent import stop
from tests.support.programs import ROOT
from tests.support.stubborn import left, stubborn
from tests.support.waiting import blocking_until


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Path]:
    """The data folder of two that ignore TERM."""
    started = [stubborn(tmp_path, name) for name in ("tiny-0-1", "tiny-0-2")]
    yield tmp_path
    for each in started:
        each.kill()
        each.wait()


def test_a_signal_cuts_the_grace_short_and_no_engine_is_left(engines: Path) -> None:  # spec: O7
    command = [sys.executable, "-m", "services.agent.stop", str(engines), "600"]
    stopping = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    blocking_until(lambda: len(list(engines.glob("*.terms"))) == 2, "both are asked to end")
    stopping.send_signal(signal.SIGTERM)
    assert stopping.communicate(timeout=60)[0] == b"engines stopped: 2\n"
    assert (stopping.returncode, left(engines)) == (0, set())


def test_an_engine_that_is_not_ended_is_named_with_what_keeps_it(
    engines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stop, "KILL_SECONDS", 0.0)  # As if KILL did nothing.
    assert stop.main(str(engines), "0") == 1
    told = capsys.readouterr()
    assert "error: tiny-0-1 was not ended: TERM and KILL did not end pid " in told.err
    assert told.out == "engines stopped: 0\n"
