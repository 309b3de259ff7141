"""Where settings come from: file, environment, command line. What no setting is called is a fault."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from schemas.frames import Fault
from services.fleet.nearest import meant
from services.fleet.settings_table import (
    BY_NAME,
    OTHER_PREFIXES,
    OTHER_VARIABLES,
    PROGRAMS,
    SETTINGS,
    SHARED,
    Program,
    Setting,
    settings_of,
)
from services.fleet.settings_values import Value, read, read_commands, read_labels
from services.fleet.units import Wrong

_TOML_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_HEADING = re.compile(r"\s*\[+\s*([A-Za-z0-9_.\"-]+)")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"-]+)\s*=")
_SECTIONS = (*SHARED, *PROGRAMS)


class Given(NamedTuple):
    """A value that one source gives, or why it is none."""

    name: str
    value: Value | Wrong
    source: str
    """In words: `--listen`, `FLOTILLA_CONTROL_LISTEN`, `flotilla.toml:3`."""
    file: str
    line: int = 0


def from_flags(program: Program, flags: Mapping[str, str]) -> Iterator[Given | Fault]:
    """Flags without dashes."""
    known = {name: row for row in settings_of(program) for name in (row.flag, row.short) if name}
    for flag, text in flags.items():
        if flag in known:
            row = known[flag]
            yield Given(row.name, read(row, text), f"--{flag}", f"--{flag}")
        else:
            hint = meant(flag, [f"--{name}" for name in known]) or _of_others(flag, program)
            yield Fault(file=f"--{flag}", message=f"unknown flag of {program}", hint=hint)


def _of_others(flag: str, program: Program) -> str:
    owners = [row.section for row in SETTINGS if row.key == flag and row.section != program]
    return f"it is a flag of {' and '.join(owners)}" if owners else ""


def from_environment(program: Program, environ: Mapping[str, str]) -> Iterator[Given | Fault]:
    """Variables of other programs may stand there too."""
    known = {row.variable: row for row in SETTINGS}
    mine = set(settings_of(program))
    for variable, text in sorted(environ.items()):
        if not variable.startswith("FLOTILLA_") or variable in OTHER_VARIABLES:
            continue
        if variable.startswith(OTHER_PREFIXES):
            continue
        row = known.get(variable)
        if row is None:
            hint = meant(variable, [*known, *OTHER_VARIABLES])
            yield Fault(file=variable, message="this variable is no setting", hint=hint)
        elif row in mine:
            yield Given(row.name, read(row, text), variable, variable)


def from_file(program: Program, text: str, file: str) -> Iterator[Given | Fault]:
    """One file serves all programs: every name in it is checked, values only of this program."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        yield _toml_fault(str(error), file)
        return
    mine = set(settings_of(program))
    for section, keys in sections.items():
        line = _line_of(text, section)
        if section not in _SECTIONS or not isinstance(keys, dict):
            yield _bad_section(section, keys, file, line)
            continue
        for key, value in cast("dict[str, Any]", keys).items():
            row, line = BY_NAME.get(f"{section}.{key}"), _line_of(text, section, key)
            if row is None:
                yield _bad_key(section, key, file, line)
            elif row in mine:
                yield Given(row.name, _from_toml(row, value), f"{file}:{line}", file, line)


def _toml_fault(message: str, file: str) -> Fault:
    found = _TOML_PLACE.search(message)
    line, column = (int(found[1]), int(found[2])) if found else (0, 0)
    why = _TOML_PLACE.sub("", message)
    return Fault(file=file, line=line, column=column, message=f"this is no TOML: {why}")


def _bad_section(section: str, value: object, file: str, line: int) -> Fault:
    homes = [f"[{row.section}]" for row in SETTINGS if row.key == section]
    message = f"unknown section `{section}`"
    if section in _SECTIONS:
        message, hint = f"`{section}` is a section", f"write `[{section}]`"
    elif homes and not isinstance(value, dict):
        hint = f"it belongs under {' or '.join(homes)}"
    else:
        hint = meant(section, _SECTIONS) or f"there are {', '.join(_SECTIONS)}"
    return Fault(file=file, line=line, path=section, message=message, hint=hint)


def _bad_key(section: str, key: str, file: str, line: int) -> Fault:
    siblings = [row.key for row in SETTINGS if row.section == section]
    homes = [f"[{row.section}]" for row in SETTINGS if row.key == key]
    if homes:
        hint = f"it belongs under {' or '.join(homes)}"
    else:
        hint = meant(key, siblings) or f"[{section}] knows {', '.join(siblings)}"
    message = f"unknown setting `{key}` under [{section}]"
    return Fault(file=file, line=line, path=f"{section}.{key}", message=message, hint=hint)


def _line_of(text: str, section: str, key: str = "") -> int:
    """Of the key, else of its section's heading; 0 where it is written in some rarer form."""
    whole = f"{section}.{key}" if key else section
    inside, found = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if heading := _HEADING.match(line):
            inside = heading[1].replace('"', "")
            written = inside
        elif pair := _KEY.match(line):
            written = f"{inside}.{pair[1]}".strip(".").replace('"', "")
        else:
            continue
        if f"{written}.".startswith(f"{whole}."):
            return number
        if written == section:
            found = number
    return found


def _from_toml(row: Setting, value: object) -> Value | Wrong:
    match value:
        case str():
            return read(row, value)
        case bool():
            if row.kind == "flag":
                return read(row, "on" if value else "off")
            return Wrong("is true or false where it cannot be", "put the value in quotes")
        case int():
            return read(row, str(value))
        case dict() if row.kind == "mapping":
            return _labels(cast("dict[str, object]", value))
        case dict() if row.kind == "engines":
            return _commands(cast("dict[str, object]", value))
        case _:
            return Wrong("is of no kind that it can be", "write it in quotes")


def _labels(table: dict[str, object]) -> Value | Wrong:
    if not all(isinstance(value, str) for value in table.values()):
        return Wrong("has a value that is no text", "put it in quotes")
    return read_labels([(name, str(value)) for name, value in table.items()])


def _commands(table: dict[str, object]) -> Value | Wrong:
    tables: dict[str, dict[str, str]] = {}
    for name, keys in table.items():
        if not isinstance(keys, dict):
            return Wrong(
                f"`{name}` is no table", f'write `[agent.engines.{name}]` and `command = "…"`'
            )
        tables[name] = {key: str(value) for key, value in cast("dict[str, object]", keys).items()}
    return read_commands(tables)
