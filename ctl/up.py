"""`flotilla up`: nats-server, control, router and agent of one machine, in the foreground.

Ctrl-C ends all of it, engines too. Killed, it leaves the engines running, and the next `up` with the
same data folder takes them over. State, ports and placements are those of the time before.
"""

import time
from pathlib import Path
from typing import TypeVar

import click

from ctl.client import Client
from ctl.demo import check_model, demo_catalog
from ctl.failure import Exit, Failure
from ctl.first_answer import answers
from ctl.fleet_here import FleetHere, Stopped, locked
from ctl.progress import Progress
from ctl.remembered import remember
from ctl.render import result, stderr_is_live
from ctl.supervise import end_leftovers, watch_signals
from ctl.token import made_by_control, read_token
from ctl.up_plan import Plan, check_ports, programs, write_files
from ctl.up_settings import options, planned
from ctl.up_stop import stop_everything
from ctl.welcome import welcome
from schemas.api import (
    Accepted,
    ApplyCatalog,
    Frame,
    ModelList,
    ModelRow,
    ReplicaList,
    ReplicaRow,
    Status,
)

LEFTOVER_SECONDS = 5.0
QUIET = {"ready", "stopped"}
TROUBLED = {"degraded", "failed", "pending"}
TROUBLE_SECONDS = 15.0
"""A model in trouble for so long is told about instead of waited for."""

F = TypeVar("F", bound=Frame)


@click.command(params=options())
def up(config: Path | None, **given: str | None) -> int:
    """Start everything on this machine: nats-server, control, router, agent, and a small model.

    Runs in the foreground until Ctrl-C, which ends the engines too. All of it listens on loopback.
    Started again with the same --data, it goes on where it was, on the same ports.
    """
    return run(planned(given, config))


def run(plan: Plan) -> int:
    """Until a signal ends it. Raises Failure when it does not come up."""
    began = time.monotonic()
    progress = Progress(live=stderr_is_live())
    if plan.model:
        check_model(plan.model)
    with locked(plan.data):
        for name in end_leftovers(plan.identities, LEFTOVER_SECONDS):
            progress.line(f"ended {name}, left behind by an `up` that was killed")
        check_ports(plan.ports)
        write_files(plan)
        remember(plan.data, plan.ports)
        watch_signals()
        fleet = FleetHere(programs(plan), progress)
        try:
            _start(plan, fleet, began)
            while True:
                fleet.turn(seconds=5.0)
        except Stopped:
            return Exit.YES
        finally:
            stop_everything(plan, fleet)


def _start(plan: Plan, fleet: FleetHere, began: float) -> None:
    """Everything at once: the programs wait for one another themselves."""
    api = _Api(plan)
    fleet.progress.step("starting nats-server, control, router and agent …")
    status = fleet.until(api.leading)
    expected = _apply_first(plan, api) if not status.catalog_revision else None
    if expected is None and plan.model:
        fleet.progress.line(
            f"--model is for the first catalog only; r{status.catalog_revision} stays current"
        )
    waiting = _Waiting(api, fleet.progress, expected)
    models = fleet.until(waiting.settled)
    ready = [row.model for row in models if row.ready]
    if ready:
        fleet.progress.step(f"{ready[0]}: asking for a first answer …")
        fleet.until(lambda: answers(plan.ports.router, ready[0]))
    fleet.progress.done()
    fleet.starting = False
    result(welcome(plan, models, time.monotonic() - began))


class _Api:
    """The management API while it may not be there yet: None stands for any failure to answer."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def client(self) -> Client:
        """Control makes the token at its first start, so the file is read anew each time."""
        return Client(self._plan.control_url, read_token(made_by_control(self._plan.data)))

    def leading(self) -> Status | None:
        """The status, once somebody leads."""
        status = self.ask("status", Status)
        return status if status is not None and status.leading else None

    def ask(self, name: str, kind: type[F]) -> F | None:
        """An answer, or None."""
        try:
            return self.client().ask(name, kind).frame
        except Failure:
            return None


class _Waiting:
    """Waits for models to be ready, or to be in a trouble that time alone does not mend."""

    def __init__(self, api: _Api, progress: Progress, expected: str | None) -> None:
        self._api = api
        self._progress = progress
        self._expected = expected
        self._trouble_since: float | None = None

    def settled(self) -> tuple[ModelRow, ...] | None:
        """The models, or None while waiting makes sense; tells how far they are."""
        models, replicas = (
            self._api.ask("models", ModelList),
            self._api.ask("replicas", ReplicaList),
        )
        if models is None or replicas is None:
            return None
        conditions = {row.condition for row in models.items}
        if self._expected and all(row.model != self._expected for row in models.items):
            return None
        if conditions <= QUIET or (conditions <= QUIET | TROUBLED and self._lasts()):
            return models.items
        if not conditions <= QUIET | TROUBLED:
            self._trouble_since = None
        told = [_loading(row) for row in replicas.items if row.phase != "ready"]
        if told or not replicas.items:
            self._progress.step(", ".join(told) or "looking for a place …")
        return None

    def _lasts(self) -> bool:
        """Whether the trouble has been there for long; a node may still be on its way."""
        if self._trouble_since is None:
            self._trouble_since = time.monotonic()
        return time.monotonic() - self._trouble_since >= TROUBLE_SECONDS


def _apply_first(plan: Plan, api: _Api) -> str:
    """Returns the name of its model."""
    source, name = demo_catalog(plan.model)
    request = ApplyCatalog(
        source=source, file="first.yaml", if_revision=0, reason=f"first catalog: {name}"
    )
    api.client().ask("apply", Accepted, request=request)
    return name


def _loading(row: ReplicaRow) -> str:
    steps = [shard.progress for shard in row.shards if shard.progress is not None]
    if not steps:
        return f"{row.model}: {row.phase} …"
    percent = steps[0].percent
    how_far = f" {percent:.0f}%" if percent is not None else ""
    return f"{row.model}: {steps[0].step}{how_far} …"
