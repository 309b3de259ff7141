"""`flotilla up`: nats-server, control, router and agent of one machine, in the foreground.

Ctrl-C ends all of it, engines too. Killed, it leaves the engines running, and the next `up` with the
same data folder takes them over. State, ports and placements are those of the time before.
"""

import time
from pathlib import Path

import click

from ctl.demo import check_model
from ctl.doors import remember_doors
from ctl.failure import Exit
from ctl.first_answer import FirstAnswer
from ctl.fleet_here import FleetHere, Stopped, locked, usable
from ctl.progress import Progress
from ctl.remembered import remember
from ctl.render import result, stderr_is_live
from ctl.supervise import end_leftovers, watch_signals
from ctl.up_plan import Plan, check_ports, programs, write_files
from ctl.up_settings import options, planned
from ctl.up_stop import stop_everything
from ctl.up_waiting import Fleet, Waiting
from ctl.welcome import next_step, welcome
from schemas.api import Status

LEFTOVER_SECONDS = 5.0
PLAIN = (
    "no TLS: passwords and all else can be read on the network between the machines; "
    "--tls-cert, --tls-key and --tls-ca change that for NATS"
)


@click.command(params=options())
def up(config: Path | None, **given: str | None) -> int:
    """Start everything on this machine: nats-server, control, router, agent, and a small model.

    Runs in the foreground until Ctrl-C, which ends the engines too. All of it listens on loopback,
    unless --listen names an address at which other machines may come in, each with a password of its
    own (`flotilla join create`); clients' port stays on loopback. Started again with the same --data,
    it goes on where it was, on the same ports.
    """
    return run(planned(given, config))


def run(plan: Plan) -> int:
    """Until a signal ends it. Raises Failure when it does not come up."""
    began = time.monotonic()
    progress = Progress(live=stderr_is_live())
    if plan.model:
        check_model(plan.model)
    with locked(plan.data):
        if plan.doors.is_open and plan.doors.tls is None:
            progress.line(PLAIN)
        for name in end_leftovers(plan.identities, LEFTOVER_SECONDS):
            progress.line(f"ended {name}, left behind by an `up` that was killed")
        check_ports(plan.ports, plan.doors)
        with usable(plan.data):
            write_files(plan)
            remember(plan.data, plan.ports)
            remember_doors(plan.data, plan.doors)
        watch_signals()
        here = FleetHere(programs(plan), progress)
        try:
            _start(plan, here, began)
            while True:
                here.turn(seconds=5.0)
        except Stopped:
            return Exit.YES
        finally:
            stop_everything(plan, here)


def _start(plan: Plan, here: FleetHere, began: float) -> None:
    """Everything at once: the programs wait for one another themselves."""
    fleet, progress = Fleet(plan), here.progress
    progress.step("starting nats-server, control, router and agent …")
    status = here.until(fleet.leading)
    if status.damage:
        progress.line(f"damaged: {status.damage.reason}")
        progress.line(f"what runs goes on, and nothing is decided; see {next_step(plan, 'status')}")
        here.starting = False
        return
    waiting = Waiting(fleet, progress, _first_model(plan, here, fleet, status))
    models = here.until(waiting.settled)
    if ready := [row.model for row in models if row.ready]:
        progress.step(f"{ready[0]}: asking for a first answer …")
        if not here.until(FirstAnswer(plan.ports.router, ready[0]).came):
            models = here.until(waiting.settled)  # What was ready before the last stop is not now.
    progress.done()
    here.starting = False
    result(*welcome(plan, models, time.monotonic() - began))


def _first_model(plan: Plan, here: FleetHere, fleet: Fleet, status: Status) -> str:
    """What the first catalog serves; empty: there is a catalog already."""
    if not status.catalog_revision:
        return here.until(fleet.apply_first)
    if plan.model:
        here.progress.line(
            f"--model is for the first catalog only; r{status.catalog_revision} stays current"
        )
    return ""
