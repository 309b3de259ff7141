"""The end of `flotilla up`: engines, then programs, then the log under them; at most 15 s in all."""

import time
from collections.abc import Sequence

from ctl.fleet_here import FleetHere
from ctl.supervise import ENDING, Child, next_signal
from ctl.up_plan import Plan

PROGRAM_SECONDS = 3.0
ENGINE_SECONDS = 6.0
"""Time to end by themselves; then they are killed."""


def stop_everything(plan: Plan, fleet: FleetHere) -> None:
    """The agent first, so that it starts no engine again; nats-server last, so that all can report.

    A second Ctrl-C skips every grace.
    """
    programs = fleet.programs
    fleet.progress.step("stopping …")
    impatient = _end([programs["agent"], programs["router"], programs["control"]])
    _stop_engines(plan, 0.0 if impatient else ENGINE_SECONDS)
    _end([programs["nats"]], 0.0 if impatient else PROGRAM_SECONDS)
    fleet.progress.line("stopped")


def _end(children: Sequence[Child], grace_seconds: float = PROGRAM_SECONDS) -> bool:
    """TERM, wait, KILL, all at once. True: a signal cut the grace short."""
    for child in children:
        child.terminate()
    until, hurry = time.monotonic() + grace_seconds, False
    while any(child.running for child in children) and time.monotonic() < until and not hurry:
        hurry = next_signal(0.1) in ENDING
    for child in children:
        child.kill()
    return hurry


def _stop_engines(plan: Plan, grace_seconds: float) -> None:
    raise NotImplementedError
