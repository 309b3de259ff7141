"""Sessions that carry an engine's mark and take no heed of TERM."""

import subprocess
from pathlib import Path

from services.agent import process
from services.agent.sessions import marked
from services.agent.store import Store


def stubborn(data: Path, replica: str) -> subprocess.Popen[bytes]:
    """As an agent of this data folder would have started it. Each TERM adds a line to `<replica>.terms`."""
    told = data / f"{replica}.terms"
    environ = {
        process.REPLICA: replica,
        process.INCARNATION: "1.1",
        process.AGENT: str(data),
        "PATH": "/usr/bin:/bin",
        "TOLD": str(told),
    }
    script = "trap 'echo term >> \"$TOLD\"' TERM; echo up; while :; do sleep 0.1; done"
    started = subprocess.Popen(
        ["/bin/sh", "-c", script], env=environ, stdout=subprocess.PIPE, start_new_session=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"  # From here on it heeds no TERM.
    started.stdout.close()
    return started


def left(data: Path) -> set[str]:
    """Replicas with a live session."""
    return {each.replica for each in marked(Store(data))}
