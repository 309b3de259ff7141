"""The end of `flotilla up`: programs, engines, then the log under them.

Within 15 s, unless an engine outlasts its KILL or the machine is busy: then within 35 s.
"""

import signal
import sys
import time
from collections.abc import Sequence

from ctl.fleet_here import FleetHere
from ctl.supervise import ENDING, Child, next_signal
from ctl.up_plan import Plan, child

PROGRAM_SECONDS = 3.0
ENGINE_SECONDS = 5.0
"""Time to end by themselves; then they are killed."""
KILL_SECONDS = 20.0
"""For the program that ends the engines to start, and for all that it tries, on a busy machine."""


def stop_everything(plan: Plan, fleet: FleetHere) -> None:
    """The agent before its engines, so that it starts none again; nats-server last, so that all can
    report. A second Ctrl-C skips every grace.
    """
    programs = fleet.programs
    fleet.progress.step("stopping …")
    hurry = _end([programs["agent"], programs["router"], programs["control"]], PROGRAM_SECONDS)
    ended = _stop_engines(plan, 0.0 if hurry else ENGINE_SECONDS)
    if not ended:
        fleet.progress.line(f"engines may still run: see {plan.logs / 'stop-engines.log'}")
    _end([programs["nats"]], 0.0 if hurry else PROGRAM_SECONDS)
    fleet.progress.line("stopped" if ended else "stopped, engines perhaps not")


def _end(children: Sequence[Child], grace_seconds: float) -> bool:
    """TERM, wait, KILL, all at once. True: a signal cut the grace short."""
    for each in children:
        each.terminate()
    hurry = _wait(children, grace_seconds)
    for each in children:
        each.kill()
    return hurry


def _stop_engines(plan: Plan, grace_seconds: float) -> bool:
    """By the agent's own program, which knows its sessions from strangers. False: some may run on.

    It is never killed: engines would live on without a word. One that is still busy when its time is
    over goes on alone, and says in its log how that ended.
    """
    command = [sys.executable, "-m", "services.agent.stop", str(plan.data), f"{grace_seconds:g}"]
    stopping = child(plan, "stop-engines", command, {})
    until = time.monotonic() + grace_seconds + KILL_SECONDS
    stopping.start(time.monotonic())
    while _wait([stopping], until - time.monotonic()):
        if grace_seconds:
            stopping.terminate()  # It cuts the grace short.
    code = stopping.ended(time.monotonic())
    if code == -signal.SIGTERM and grace_seconds:  # It came before it could listen.
        return _stop_engines(plan, 0.0)
    return code == 0


def _wait(children: Sequence[Child], seconds: float) -> bool:
    """Until all have ended, the time is over, or (True) a signal asks for the end again."""
    until = time.monotonic() + seconds
    while any(each.running for each in children) and time.monotonic() < until:
        if next_signal(0.1) in ENDING:
            return True
    return False
