"""What nats-server is run with."""

import os
import subprocess
from pathlib import Path

from services.log import server


def test_finds_the_binary_of_the_wheel() -> None:
    assert os.access(server.binary(), os.X_OK)


def test_the_server_accepts_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(server.config(tmp_path / 'odd "dir" \\ name', 4222, monitor_port=8222))
    command = [str(server.binary()), "-c", str(file), "-t"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_writes_are_synced_and_nothing_listens_beyond_loopback(tmp_path: Path) -> None:
    # spec: L6
    text = server.config(tmp_path, 4222)
    assert "sync_interval: always" in text
    assert 'listen: "127.0.0.1:4222"' in text
    assert "http" not in text
