"""Disks that refuse."""

from pathlib import Path

import pytest

from services.agent.disk import Disk
from services.agent.engine_log import shorten


async def test_a_refused_write_is_a_fault_until_it_is_taken(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "missing" / "file"
    assert not await disk.keep("file", lambda: path.write_text("x"))
    assert not await disk.keep("other", lambda: path.write_text("x"))
    assert disk.fault.startswith("file: No such file or directory; other: ")
    path.parent.mkdir()
    assert await disk.keep("file", lambda: path.write_text("x"))
    assert await disk.keep("other", lambda: None)
    assert disk.fault == ""


def test_a_long_log_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x" * 100)
    shorten(path, largest=100)
    assert path.stat().st_size == 100
    shorten(path, largest=99)
    assert path.stat().st_size == 0
    assert path.with_suffix(".log.1").read_text() == "x" * 100


def test_a_log_that_cannot_be_moved_aside_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x" * 100)
    path.with_suffix(".log.1").mkdir()
    with pytest.raises(OSError, match="directory"):
        shorten(path, largest=10)
    assert path.stat().st_size == 100
