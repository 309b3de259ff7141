"""Every setting of every program, as a table: one name in file, flag and environment. No IO.

`control.listen` is `[control] listen = …` in flotilla.toml, `FLOTILLA_CONTROL_LISTEN` in the
environment and `--listen` on `flotilla control`. Settings that all programs share keep their section
in the flag: `nats.url` is `--nats-url`. A flag wins over the environment, that over the file, that
over the default. Secrets are never settings: only the paths of files that hold them are.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from schemas.api import Fault

Program = Literal["control", "router", "agent", "up"]
Kind = Literal[
    "text",
    "path",
    "choice",
    "port",
    "ports",
    "address",
    "duration",
    "size",
    "count",
    "flag",
    "mapping",
    "engines",
]


class EngineCommand(Struct, frozen=True, kw_only=True):
    """An engine environment as the node's configuration states it."""

    name: str
    kind: str
    command: tuple[str, ...]
    """An argv; the adapter adds the flags."""
    version: str = ""
    """Empty: the agent asks the engine."""


class Setting(Struct, frozen=True, kw_only=True):
    """One row: a setting, what it may be, and what it is when nobody says."""

    name: str
    """section.key; the section is the program's name, or a shared one."""
    kind: Kind
    default: str | None = None
    """As written in a file; None: unset, and `help` says what that means."""
    help: str
    off: bool = False
    """May be `off`."""
    zero: bool = False
    """May be 0."""
    choices: tuple[str, ...] = ()
    short: str = ""
    """Another spelling of its flag."""


class SettingFaults(Struct, frozen=True):
    """Why there are no settings: every fault with its place."""

    faults: tuple[Fault, ...]


class Resolved:
    """The settings of one program, each with its source. Made by `resolve`."""

    def has(self, name: str) -> bool:
        """Whether it is set, or has a default."""
        raise NotImplementedError

    def text(self, name: str) -> str:
        """Of kinds text, path and choice."""
        raise NotImplementedError

    def count(self, name: str) -> int:
        """Of kinds count and port."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Bytes."""
        raise NotImplementedError

    def duration(self, name: str) -> float | None:
        """Seconds; None: off."""
        raise NotImplementedError

    def flag(self, name: str) -> bool:
        """On or off."""
        raise NotImplementedError

    def address(self, name: str) -> tuple[str, int]:
        """Host and port."""
        raise NotImplementedError

    def ports(self, name: str) -> tuple[int, int]:
        """First and last."""
        raise NotImplementedError

    def mapping(self, name: str) -> dict[str, str]:
        """Of kind mapping."""
        raise NotImplementedError

    def engines(self, name: str) -> dict[str, EngineCommand]:
        """Of kind engines."""
        raise NotImplementedError


def resolve(
    program: Program,
    file_text: str,
    environ: Mapping[str, str],
    flags: Mapping[str, str],
    file: str = "flotilla.toml",
) -> Resolved | SettingFaults:
    """Every setting of `program` from its four sources, or every fault. Flags without dashes."""
    raise NotImplementedError
