"""Logs of running programs, held to a size. What is older than the last two pieces is gone."""

import shutil
from pathlib import Path

LOG_BYTES = 16 << 20


def hold(log: Path, limit_bytes: int = LOG_BYTES) -> None:
    """Put a log over the limit aside as `<name>.log.1`, and go on in the same file from its beginning.

    The program keeps it open for appending, so it is copied and cut instead of renamed; what is
    written between the two is lost.
    """
    try:
        if log.stat().st_size <= limit_bytes:
            return
        shutil.copyfile(log, log.with_suffix(".log.1"))
        with log.open("r+b") as file:
            file.truncate(0)
    except OSError:
        return  # A full disk must not end the fleet; the next look tries again.
