"""Small files that survive a crash: whole, old or new, never torn."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `content`: written aside, synced, renamed, its folder synced.

    Blocks for the disk: from an event loop, call it in a thread when the file is large or frequent.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)  # A full disk is not to hold it.
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def unusable(data: Path, error: OSError) -> str:
    """For people: why a program cannot work with its data folder."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file stands where a folder must be"
    else:
        reason = error.strerror or str(error)
    at = "" if error.filename in (None, str(data)) else f" ({error.filename})"
    return f"the data folder {data} cannot be used: {reason}{at}"


def read_if_there(path: Path) -> bytes | None:
    """The content, or None where there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
