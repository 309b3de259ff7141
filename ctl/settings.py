"""Settings of a program for a verb: every fault becomes a line of the Failure."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ctl.failure import Exit, Failure
from ctl.faults import fault_lines
from services.fleet.settings import Program, Resolved, SettingFaults
from services.fleet.settings_table import Setting, settings_of
from services.settings_io import load


def option(row: Setting) -> click.Option:
    """Its flag. What it is given is checked with the rest of the settings, not by click."""
    spellings = [f"--{name}" for name in (row.short, row.flag) if name]
    default = f"  [default: {row.default}]" if row.default else ""
    return click.Option(
        [*spellings, argument(row)], metavar=row.kind.upper(), help=f"{row.help}{default}"
    )


def argument(row: Setting) -> str:
    """What click calls it."""
    return row.name.replace(".", "_").replace("-", "_")


def flags(program: Program, given: Mapping[str, str | None]) -> dict[str, str]:
    """Those that were given, by flag; `given` is by argument name."""
    return {
        row.flag: text
        for row in settings_of(program)
        if (text := given.get(argument(row))) is not None
    }


def settings(
    program: Program, flags: Mapping[str, str] | None = None, config: Path | None = None
) -> Resolved:
    """Out of flags (without dashes), this process's environment, and the file."""
    found = load(program, flags or {}, os.environ, config)
    if isinstance(found, SettingFaults):
        raise Failure(
            Exit.USAGE,
            "bad_settings",
            f"the settings of {program} are wrong",
            details=fault_lines(found.faults),
            steps=[f"flotilla {_helped(program)} --help"],
        )
    return found


def _helped(program: Program) -> str:
    """What says which settings there are."""
    return {"operator": "status", "journal": "journal verify"}.get(program, program)
