"""Reads flotilla.toml for a program, and ends a program whose settings are wrong. The IO of settings."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.frames import Fault
from services.fleet.faults import one_line
from services.fleet.settings import (
    DEFAULT_FILE,
    Program,
    Resolved,
    SettingFaults,
    read_flags,
    resolve,
    usage,
)
from services.runtime.saying import Unread, err, out_as_it_is, unread

EXIT_USAGE = 2


def load(
    program: Program,
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    config: Path | None = None,
) -> Resolved | SettingFaults:
    """Settings from all sources. The file: `config`, else FLOTILLA_CONFIG, else flotilla.toml here.

    Flags without dashes.
    """
    named = config or (Path(environ["FLOTILLA_CONFIG"]) if environ.get("FLOTILLA_CONFIG") else None)
    path = named or Path(DEFAULT_FILE)
    try:
        text = path.read_text(encoding="utf-8") if named or path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return SettingFaults((Fault(file=str(path), message=f"cannot be read: {why}"),))
    return resolve(program, text, environ, flags, file=str(path))


def from_command_line(
    program: Program, argv: Sequence[str], environ: Mapping[str, str]
) -> Resolved | SettingFaults:
    """`load` for `python -m services.<program> ARGV`, where `--config FILE` may stand too."""
    flags = read_flags(argv)
    if isinstance(flags, SettingFaults):
        return flags
    config = flags.pop("config", None)
    return load(program, flags, environ, Path(config) if config else None)


def or_exit(program: Program, argv: Sequence[str], environ: Mapping[str, str]) -> Resolved:
    """Settings; or help on standard output, or every fault on standard error and exit code 2."""
    if "--help" in argv:
        sys.exit(_helped(program))
    found = from_command_line(program, argv, environ)
    if isinstance(found, SettingFaults):
        err(*map(one_line, found.faults))
        sys.exit(EXIT_USAGE)
    return found


def _helped(program: Program) -> int:
    try:
        out_as_it_is(usage(program).rstrip("\n"))
    except Unread as error:
        return unread(error.__cause__)
    return 0
