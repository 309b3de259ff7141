"""What the agent knows of one engine: one interface, mostly data.

An adapter says how an engine is started, what its log and exit mean, and how it is asked. It does
no IO and keeps no state.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from schemas.documents import EngineKind, LastError, LaunchSpec
from schemas.ids import EngineName


class Environment(Struct, frozen=True, kw_only=True):
    """A named engine environment of this node."""

    name: EngineName
    kind: EngineKind
    command: tuple[str, ...]
    """The argv that the adapter adds its flags to."""
    version: str = ""
    """Empty: could not be told."""


class Command(Struct, frozen=True):
    """What is executed, and the variables that the adapter adds. Neither holds a secret."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Step(Struct, frozen=True):
    """A line of the log that tells how far a load has come; group `percent` where it says so."""

    pattern: re.Pattern[str]
    name: str


class Failure(Struct, frozen=True, kw_only=True):
    """A line of the log that tells why the engine ended."""

    pattern: re.Pattern[str]
    name: str
    permanent: bool = False
    """True: another start of the same would fail alike."""
    hint: str = ""


Health = Literal["loading", "ready", "dead", "unclear"]


class Adapter(Struct, frozen=True, kw_only=True):
    """One engine kind."""

    kind: EngineKind
    command: Callable[[LaunchSpec, Environment], Command | LastError]
    """The command line, or why there is none."""
    health_path: str = "/health"
    health: Mapping[int, Health] = {}
    """By status code; any other is unclear. Nobody listening is `loading` during a load."""
    metrics_path: str = "/metrics"
    steps: tuple[Step, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The first that matches wins, so the general ones stand last."""
    kill_while_loading: bool = False
    """True: it may ignore SIGTERM during a load, so a stop then kills at once."""
    stop_grace_seconds: float = 10.0
    """Between SIGTERM and SIGKILL."""


def refusal(failure: str, message: str) -> LastError:
    """Why an engine is not even started; only another launch spec can change it."""
    return LastError(failure=failure, message=message, permanent=True)
