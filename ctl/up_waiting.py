"""What `flotilla up` asks of the management API while it may not be there yet."""

import time
from typing import TypeVar

from ctl.client import Client
from ctl.demo import demo_catalog
from ctl.failure import Exit, Failure
from ctl.progress import Progress
from ctl.token import made_by_control, read_token
from ctl.up_plan import Plan
from schemas.api import ApplyCatalog, ModelList, ModelRow, ReplicaList, ReplicaRow, Status
from schemas.frames import Accepted, Frame

QUIET = {"ready", "stopped"}
TROUBLED = {"degraded", "failed", "pending"}
TROUBLE_SECONDS = 15.0
"""A model in trouble for so long is told about instead of waited for."""
HOPELESS = {"unauthorized", "forbidden", "not_understood"}
"""Codes of answers that asking again does not change."""
AGAIN = {Exit.UNREACHABLE, Exit.OUTCOME_UNKNOWN}
"""Safe for the first catalog: it is applied only where there is none."""

F = TypeVar("F", bound=Frame)


class Fleet:
    """The management API: None stands for an answer that may still come."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def leading(self) -> Status | None:
        """The status, once somebody leads, or once it is clear that nobody will."""
        status = self.ask("status", Status)
        return status if status is not None and (status.leading or status.damage) else None

    def ask(self, name: str, kind: type[F]) -> F | None:
        """An answer, if there is one now."""
        try:
            return self._client().ask(name, kind).frame
        except Failure as failure:
            if failure.code in HOPELESS:
                raise
            return None

    def apply_first(self) -> str | None:
        """Make the first catalog current: the name of its model; empty: there was another by then."""
        source, name = demo_catalog(self._plan.model)
        request = ApplyCatalog(
            source=source, file="first.yaml", if_revision=0, reason=f"first catalog: {name}"
        )
        try:
            self._client().ask("apply", Accepted, request=request)
        except Failure as failure:
            if failure.code == "revision_changed":
                return ""
            if failure.code in HOPELESS or failure.exit_code not in AGAIN:
                raise
            return None
        return name

    def _client(self) -> Client:
        """Control makes the token at its first start, so the file is read anew each time."""
        file = made_by_control(self._plan.data)
        return Client(self._plan.control_url, read_token(file), str(file), quiet=True)


class Waiting:
    """Waits for models to be ready, or to be in a trouble that time alone does not mend."""

    def __init__(self, fleet: Fleet, progress: Progress, expected: str) -> None:
        self._fleet = fleet
        self._progress = progress
        self._expected = expected
        self._trouble_since: float | None = None

    def settled(self) -> tuple[ModelRow, ...] | None:
        """The models, or None while waiting makes sense; tells how far they are."""
        models, replicas = (
            self._fleet.ask("models", ModelList),
            self._fleet.ask("replicas", ReplicaList),
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


def _loading(row: ReplicaRow) -> str:
    steps = [shard.progress for shard in row.shards if shard.progress is not None]
    if not steps:
        return f"{row.model}: {row.phase} …"
    percent = steps[0].percent
    how_far = f" {percent:.0f}%" if percent is not None else ""
    return f"{row.model}: {steps[0].step}{how_far} …"
