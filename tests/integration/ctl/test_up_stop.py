"""The end of `up` where engines do not end when they are asked, and Ctrl-C comes more than once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctl.fleet_here import FleetHere
from ctl.progress import Progress
from ctl.remembered import Ports
from ctl.supervise import WATCHED, Child
from ctl.up_plan import Plan
from ctl.up_stop import stop_everything
from schemas.ids import NodeId
from tests.support.stubborn import left, stubborn


@pytest.fixture
def watched() -> Iterator[None]:
    """As `up` has it: its signals wait to be asked for, more than one of a kind is one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    yield
    signal.sigtimedwait(WATCHED, 0.0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("watched")
def test_a_second_ctrl_c_leaves_no_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # spec: O7
    plan = Plan(data=tmp_path, ports=Ports(), node=NodeId("node-1"))
    for folder in (plan.logs, plan.identities):
        folder.mkdir()
    engines = [stubborn(tmp_path, name) for name in ("tiny-0-1", "tiny-0-2")]
    ended = {
        name: Child(name=name, command=[], log=tmp_path / name, identity_file=tmp_path / name)
        for name in ("agent", "router", "control", "nats")
    }
    os.kill(os.getpid(), signal.SIGINT)
    try:
        stop_everything(plan, FleetHere(ended, Progress(live=False)))
        assert left(tmp_path) == set()
        assert "engines" not in capsys.readouterr().err
    finally:
        for each in engines:
            each.kill()
            each.wait()
