"""How the reader of a message types our command, so that it can be pasted as it stands."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence

_BY_UV = {"UV_RUN_RECURSION_DEPTH", "UV"}
"""Either is set in what `uv run` starts, by its version: the shell's path has no `flotilla` then."""
_PLACE = ("--data", "--config", "--server", "--token-file")
"""Which fleet is meant: what was said to this command holds for the next one too."""
_OF_UP = ("--data", "--config")
_OF_NATS = (
    *_OF_UP,
    *(f"--nats-{name}" for name in ("url", "user", "password-file", "ca", "cert", "key")),
)
_PLACES = {
    "flotilla version": (),
    "flotilla agent": (),
    "flotilla up": _OF_UP,
    "flotilla join entry": (),
    "flotilla join": _OF_UP,
    "flotilla journal export": _OF_NATS,
    "flotilla journal import": _OF_NATS,
    "flotilla journal verify": _OF_NATS,
}
"""Verbs that take others, by how they begin: the first that fits."""


def typed(
    command: str, environ: Mapping[str, str] = os.environ, said: Sequence[str] | None = None
) -> str:
    """`flotilla …` as it works where this process was started; other commands as they are.

    `said` is the command line of this process, without the program; None: its real one.
    """
    if not command.startswith("flotilla "):
        return command
    place = _place(command, sys.argv[1:] if said is None else said)
    whole = " ".join([command, *map(shlex.quote, place)])
    return whole if _BY_UV.isdisjoint(environ) else f"uv run {whole}"


def _place(command: str, said: Sequence[str]) -> Iterable[str]:
    """The options of `said` that `command` needs and does not name itself."""
    if "--help" in command:
        return
    known = next((taken for verb, taken in _PLACES.items() if command.startswith(verb)), _PLACE)
    words = iter(said)
    for word in words:
        name, equals, value = word.partition("=")
        if name in known and name not in shlex.split(command):
            yield name
            yield value if equals else next(words, "")
