"""Settings of a program for a verb: every fault becomes a line of the Failure."""

import os
from collections.abc import Mapping
from pathlib import Path

from ctl.failure import Exit, Failure
from ctl.faults import fault_lines
from services.fleet.settings import Program, Resolved, SettingFaults
from services.settings_io import load


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
            steps=[f"flotilla {program} --help"],
        )
    return found
