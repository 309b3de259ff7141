"""`flotilla control|router|agent`: become that program. Its flags are its own business."""

import os
import sys

import click

PASSED_ON: dict[str, object] = {"ignore_unknown_options": True, "help_option_names": []}


def _program(name: str, summary: str) -> click.Command:
    @click.command(name, context_settings=PASSED_ON, help=summary)
    @click.argument("flags", nargs=-1, type=click.UNPROCESSED)
    def run(flags: tuple[str, ...]) -> None:
        # Not a child process: signals and the exit code are the program's own.
        os.execv(  # noqa: S606  # An argv of ours; the flags are the user's own.
            sys.executable, [sys.executable, "-m", f"services.{name}", *flags]
        )

    return run


control = _program("control", "Run the control service.")
router = _program("router", "Run a router.")
agent = _program("agent", "Run a node's agent.")
