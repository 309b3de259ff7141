"""How the reader of a message types our command: `uv run` has no `flotilla` on the shell's path."""

import os
from collections.abc import Mapping

_BY_UV = {"UV_RUN_RECURSION_DEPTH", "UV"}
"""Either is set in what `uv run` starts, by its version."""


def typed(command: str, environ: Mapping[str, str] = os.environ) -> str:
    """`flotilla …` in the form that works in the shell that this process was started from."""
    if not _BY_UV.isdisjoint(environ) and command.startswith("flotilla "):
        return f"uv run {command}"
    return command
