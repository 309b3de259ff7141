"""The settings of one program out of file, environment and command line. No IO.

A flag wins over the environment, that over the file, that over the default. A wrong or unknown
setting is a fault wherever it stands, also where another source would win over it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from schemas.frames import Fault
from services.fleet.addresses import Address, advertised
from services.fleet.settings_sources import Given, from_environment, from_file, from_flags
from services.fleet.settings_table import (
    BY_NAME,
    SETTINGS,
    Program,
    Setting,
    settings_of,
)
from services.fleet.settings_values import (
    Commands,
    EngineCommand,
    Labels,
    Ports,
    Value,
    read,
    write,
)
from services.fleet.units import OFF, Wrong

__all__ = [
    "DEFAULT_FILE",
    "SETTINGS",
    "Address",
    "EngineCommand",
    "Ports",
    "Program",
    "Resolved",
    "Setting",
    "SettingFaults",
    "Shown",
    "read_flags",
    "resolve",
    "show",
    "usage",
]

T = TypeVar("T")
DEFAULT_FILE = "flotilla.toml"
_DEFAULT = "default"


class SettingFaults(Struct, frozen=True):
    """Why there are no settings: every fault with its place."""

    faults: tuple[Fault, ...]


class Shown(Struct, frozen=True, kw_only=True):
    """One setting as `config show` prints it."""

    name: str
    value: str
    """Empty: unset."""
    source: str
    """`default`, `unset`, `--listen`, `FLOTILLA_CONTROL_LISTEN` or `flotilla.toml:3`."""
    help: str


class Resolved:
    """The settings of one program, each with its source."""

    def __init__(self, program: Program, values: Mapping[str, tuple[Value, str]]) -> None:
        self.program: Program = program
        self.values = values
        """Value and source by name; unset ones are not there."""

    def has(self, name: str) -> bool:
        """Whether it is set or has a default. Those without a default are asked this first."""
        return name in self.values

    def text(self, name: str) -> str:
        """Of kinds text, url, path and choice."""
        return self._of(name, str)

    def count(self, name: str) -> int:
        """Of kinds count and port."""
        return self._of(name, int)

    def size(self, name: str) -> int:
        """Bytes."""
        return self._of(name, int)

    def duration(self, name: str) -> float | None:
        """Seconds; None: off."""
        return None if self.values[name][0] == OFF else self._of(name, float)

    def seconds(self, name: str) -> float:
        """Of a duration that cannot be off."""
        return self._of(name, float)

    def flag(self, name: str) -> bool:
        """On or off."""
        return self._of(name, bool)

    def address(self, name: str) -> Address:
        """Host and port."""
        return self._of(name, Address)

    def advertised(self, name: str) -> Address:
        """What others are told to reach a listener by; `name` is the setting of its host."""
        told = self._advertised(BY_NAME[name])
        if told is None:
            raise TypeError(f"{name} was not checked")
        return told

    def ports(self, name: str) -> Ports:
        """First and last."""
        return self._of(name, Ports)

    def mapping(self, name: str) -> dict[str, str]:
        """Of kind mapping."""
        return self._of(name, Labels).values

    def engines(self, name: str) -> dict[str, EngineCommand]:
        """Of kind engines."""
        return self._of(name, Commands).values

    def undecided(self) -> Iterator[Setting]:
        """Hosts that must be set here, since their listeners have every address of the machine."""
        rows = (row for row in settings_of(self.program) if row.advertises)
        return (row for row in rows if self._advertised(row) is None)

    def _advertised(self, row: Setting) -> Address | None:
        host = self.text(row.name) if self.has(row.name) else None
        return advertised(self.address(row.advertises), host)

    def _of(self, name: str, kind: type[T]) -> T:
        value = self.values[name][0]
        if not isinstance(value, kind):
            raise TypeError(f"{name} is no {kind.__name__}")
        return value


def resolve(
    program: Program,
    file_text: str,
    environ: Mapping[str, str],
    flags: Mapping[str, str],
    file: str = DEFAULT_FILE,
) -> Resolved | SettingFaults:
    """Every setting of `program`, or every fault. Flags without dashes."""
    values = {row.name: (_default(row), _DEFAULT) for row in settings_of(program) if row.default}
    faults: list[Fault] = []
    sources = (
        from_file(program, file_text, file),
        from_environment(program, environ),
        from_flags(program, flags),
    )
    for given in (given for source in sources for given in source):
        if isinstance(given, Fault):
            faults.append(given)
        elif isinstance(given.value, Wrong):
            faults.append(_fault(given, given.value))
        else:
            values[given.name] = (given.value, given.source)
    if faults:
        return SettingFaults(tuple(faults))
    found = Resolved(program, values)
    faults = [_undecided(row, found) for row in found.undecided()]
    return SettingFaults(tuple(faults)) if faults else found


def _undecided(row: Setting, found: Resolved) -> Fault:
    return Fault(
        file=found.values[row.advertises][1],
        path=row.name,
        message=f"`{row.advertises}` is every address of this machine, and none for others to use",
        hint=f"set `{row.name}`: {row.help}",
    )


def _default(row: Setting) -> Value:
    value = read(row, row.default or "")
    if isinstance(value, Wrong):
        raise TypeError(f"default of {row.name}: {value.message}")
    return value


def _fault(given: Given, wrong: Wrong) -> Fault:
    return Fault(
        file=given.file,
        line=given.line,
        path=given.name,
        message=f"`{given.name}`: {wrong.message}",
        hint=wrong.hint,
    )


def show(resolved: Resolved) -> list[Shown]:
    """Every setting of the program, also unset ones, in the order of the table."""
    return [_shown(row, resolved.values.get(row.name)) for row in settings_of(resolved.program)]


def _shown(row: Setting, held: tuple[Value, str] | None) -> Shown:
    if held is None:
        return Shown(name=row.name, value="", source="unset", help=row.help)
    value, source = held
    return Shown(name=row.name, value=write(row, value), source=source, help=row.help)


def read_flags(argv: Sequence[str]) -> dict[str, str] | SettingFaults:
    """`--name value` and `--name=value` by name; each takes a value and stands once."""
    flags: dict[str, str] = {}
    faults: list[Fault] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            faults.append(Fault(file=word, message="this is no flag", hint="write `--name value`"))
            continue
        text = value if equals else next(words, None)
        if text is None:
            faults.append(Fault(file=word, message="has no value", hint=f"write `{word} VALUE`"))
        elif name in flags:
            faults.append(Fault(file=f"--{name}", message="is there twice", hint="keep one"))
        else:
            flags[name] = text
    return SettingFaults(tuple(faults)) if faults else flags


def usage(program: Program) -> str:
    """What `--help` prints."""
    rows = [f"  --config FILE\n      settings file; default: {DEFAULT_FILE} where there is one"]
    for row in settings_of(program):
        default = f" [{row.default}]" if row.default else ""
        rows.append(f"  --{row.flag} {row.kind.upper()}{default}\n      {row.help}")
    return f"usage: flotilla {program} [--NAME VALUE …]\n\n" + "\n".join(rows) + "\n"
