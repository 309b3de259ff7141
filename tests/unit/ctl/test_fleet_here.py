"""The data folder that `up` is given, and how long it waits for a program that is due."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ctl.failure import Exit, Failure
from ctl.fleet_here import FleetHere, locked
from ctl.progress import Progress
from ctl.supervise import Child


def a_folder_under_a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file" / "data"


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


def a_place_without_files(_: Path) -> Path:
    return Path("/proc/no-such-place")


@pytest.mark.parametrize("made", [a_folder_under_a_file, a_file, a_place_without_files])
def test_a_data_folder_that_cannot_be_used_is_named(
    made: Callable[[Path], Path], tmp_path: Path
) -> None:
    """# spec: O7"""
    data = made(tmp_path)
    with pytest.raises(Failure) as told, locked(data):
        pass
    assert (told.value.exit_code, told.value.code) == (Exit.USAGE, "data_unusable")
    assert str(data) in told.value.message


def test_the_holder_of_a_folder_is_asked_by_a_line_that_can_be_pasted(tmp_path: Path) -> None:
    """# spec: O7"""
    data = tmp_path / "my fleet;id"
    with locked(data), pytest.raises(Failure) as told, locked(data):
        pass
    assert shlex.split(told.value.steps[0]) == ["flotilla", "status", "--data", str(data)]


def test_a_program_that_is_due_is_not_kept_waiting(tmp_path: Path) -> None:
    child = Child(
        name="thing",
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
        log=tmp_path / "thing.log",
        identity_file=tmp_path / "thing.json",
        due=time.monotonic() + 0.2,
    )
    here = FleetHere({"thing": child}, Progress(live=False))
    began = time.monotonic()
    try:
        while child.process is None:
            here.turn(seconds=60.0)
        assert time.monotonic() - began < 30.0
    finally:
        child.kill()
