"""An engine's log file: what is new in it, its end, its size. The engine writes, others only read.

The engine has the file open for appending, so it may be truncated under it.
"""

import os
import shutil
from pathlib import Path

TAIL_BYTES = 64 * 1024
LARGEST_BYTES = 64 * 1024 * 1024


class EngineLog:
    """One run's part of the file, from `start` on."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._start = start
        self._read_to = start

    def fresh(self) -> str:
        """What came since the last call, at most 64 KiB of it; whole lines only."""
        size = size_of(self._path)
        if size < self._read_to:  # Truncated.
            self._read_to = self._start = 0
        raw = _read(self._path, self._read_to, TAIL_BYTES)
        whole = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
        if whole == 0 and len(raw) == TAIL_BYTES:
            whole = len(raw)  # One endless line.
        self._read_to += whole
        return raw[:whole].decode(errors="replace")

    def tail(self) -> str:
        """The end of this run's part, from a line's beginning."""
        size = size_of(self._path)
        start = 0 if size < self._start else self._start
        begin = max(start, size - TAIL_BYTES)
        raw = _read(self._path, begin, TAIL_BYTES)
        if begin > start:  # A secret may have been cut in two there.
            raw = raw.partition(b"\n")[2]
        return raw.decode(errors="replace")


def size_of(path: Path) -> int:
    """0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def shorten(path: Path, largest: int = LARGEST_BYTES) -> None:
    """Move the content aside once it is larger, over the one moved before. Blocks for the disk."""
    if size_of(path) <= largest:
        return
    aside = path.with_suffix(".log.1")
    try:
        shutil.copyfile(path, aside)
    except OSError:
        aside.unlink(missing_ok=True)  # A part of it would only fill the disk.
        raise
    os.truncate(path, 0)


def _read(path: Path, begin: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(most)
    except FileNotFoundError:
        return b""
