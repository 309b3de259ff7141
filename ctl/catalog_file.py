"""Reads a catalog file as its verbs are given it."""

import sys
from pathlib import Path

from ctl.failure import Exit, Failure

STDIN = "-"


def read(file: Path) -> tuple[bytes, str]:
    """Its content and its name (`-`: standard input). Raises Failure."""
    if str(file) == STDIN:
        return sys.stdin.buffer.read(), "<stdin>"
    try:
        return file.read_bytes(), str(file)
    except OSError as error:
        raise Failure(
            Exit.USAGE, "no_file", f"cannot read {file}: {error.strerror or error}"
        ) from error


def text(content: bytes, name: str) -> str:
    """As UTF-8. Raises Failure."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Failure(
            Exit.USAGE, "bad_catalog", f"{name} is not UTF-8 text: byte {error.start}"
        ) from error
