"""A program whose data folder cannot be used says which and why, and ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("program", ["control", "router", "agent"])
@pytest.mark.parametrize("kind", ["file", "proc"])
def test_a_data_folder_that_cannot_be_used_is_named(
    program: str, kind: str, tmp_path: Path
) -> None:
    """# spec: O8"""
    data = tmp_path / "data" if kind == "file" else Path("/proc/no-such-place")
    if kind == "file":
        data.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", f"services.{program}"],
        env={**os.environ, "FLOTILLA_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"error: the data folder {data}" in done.stderr
    assert "Traceback" not in done.stderr
