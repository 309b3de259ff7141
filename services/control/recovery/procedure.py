"""Carries a recovery out: waits for the agents, hands over what was known, ends it. Shell.

`step` is a turn of whoever leads a log that is recovering. What is taken over and in which order is in
`handover.py`; how such a log begins is in `beginning.py`.

How it fails:
- Killed at any point: its disk has what was chosen, and the same control goes on. Where another control
  leads meanwhile, or the disk is gone, the log stays "recovering" until a way is chosen again.
- An agent beats and does not move over: after a minute in which it could have, the recovery goes on
  without it, as without a node that is away. What it runs lives on, and is taken over when it moves.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic

import structlog

from schemas import subjects
from schemas.beats import AgentBeat
from schemas.documents import CatalogPointer
from schemas.ids import EventId, LogId, NodeId
from schemas.recovery import Moving, Recovery
from services.control.commanding.commands import record
from services.control.deciding.current import Current
from services.control.deciding.drafts import Draft, batches
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.ears import Ears
from services.control.opening import Opener
from services.control.recovery.beginning import Beginning
from services.control.recovery.choice import VERB, Known, ways
from services.control.recovery.handover import carry, is_recovering, running, take_over, waits_for
from services.control.recovery.job import Job, JobFile
from services.control.writing import Writing
from services.fleet.catalog import CatalogFaults, from_json
from services.fleet.state import FleetState

WAIT_SECONDS = 60.0
"""For an agent that beats and does not move over: it looks at the log every ten seconds."""

MOST_TOLD = 2000
"""Characters of the agents that were not waited for, in the log."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Recovering:
    """Of one control service."""

    def __init__(
        self,
        beginning: Beginning,
        file: JobFile,
        opener: Opener,
        ears: Ears,
        writing: Writing,
        state: Callable[[], FleetState],
    ) -> None:
        self.beginning = beginning
        self._file = file
        self._opener = opener
        self._ears = ears
        self._writing = writing
        self._state = state
        self._current: tuple[LogId, Current] | None = None
        self._waits_since: tuple[LogId, float] | None = None

    def due(self, state: FleetState) -> bool:
        """Nothing may be decided before this is over."""
        return is_recovering(state)

    def current(self, state: FleetState) -> Current | None:
        """The catalog that is recovered, while it is not in the log yet."""
        job = self._job(state)
        if job is None:
            return None
        if self._current is None or self._current[0] != job.log:
            made = from_json(job.revision.source)
            if isinstance(made, CatalogFaults):
                return None
            self._current = job.log, Current(job.revision.revision, made)
        return self._current[1]

    def _job(self, state: FleetState) -> Job | None:
        job = self._file.job
        return job if job is not None and is_recovering(state) and job.log == state.log_id else None

    # What is shown.

    def moving(self) -> Moving | None:
        """How far a recovery is; None: there is none."""
        state = self._state()
        held = state.genesis.get(())
        if held is None or not is_recovering(state):
            return None
        job, beats = self._job(state), self._ears.agents()
        waits = waits_for(state, beats)
        lines = [
            f"{node}: {reason}; for {WAIT_SECONDS:g} s at the most"
            for node, reason in waits.items()
        ]
        if job is None:
            lines.insert(0, f"an operator's choice: {VERB}")
        return Moving(
            log=held.document.log_id,
            parent=held.document.parent or "",
            told="" if job is None else job.told,
            moved=tuple(sorted(beat.node for beat in beats if beat.node not in waits)),
            waits_for=tuple(lines),
        )

    async def view(self) -> Recovery:
        """What is known, and the ways out."""
        moving = self.moving()
        lost = self._opener.damage is not None or (moving is not None and not moving.told)
        known = await self.beginning.known() if lost else Known(None, None, ())
        run = running(self.beginning.best(known), known.beats)
        return Recovery(
            as_of_seq=self._state().sequence,
            damage=self._opener.damage,
            moving=moving,
            running={model: list(run.values()).count(model) for model in sorted(set(run.values()))},
            ways=ways(known) if lost else (),
        )

    # Its course.

    async def step(self, decide: Callable[[], Awaitable[bool]]) -> None:
        """As far as it goes now. `decide` makes one pass by `current`; False: not all of it stands."""
        state = self._state()
        job, current = self._job(state), self.current(state)
        if job is None or current is None:
            return
        beats = self._ears.agents()
        late = waits_for(state, beats)
        if self._ears.hearing_seconds() < UNREACHABLE_SECONDS or (late and self._waits(job)):
            return
        moved = _nodes(beats) - late.keys()
        if not await self._write(carry(state, job.base, moved)):
            return
        drafts = take_over(state, job.base, current.catalog.models, moved)
        if await self._write(drafts) and await decide() and await self._write(_end(job, late)):
            log.warning("log.recovered", log_id=job.log, told=job.told, without=late)
            await self._file.forget()

    def _waits(self, job: Job) -> bool:
        """Whether agents that beat may still move over: only while control hears them could they."""
        if self._waits_since is None or self._waits_since[0] != job.log:
            self._waits_since = job.log, monotonic()
        waited = monotonic() - self._waits_since[1]
        return min(waited, self._ears.hearing_seconds()) < WAIT_SECONDS

    async def _write(self, drafts: Sequence[Draft]) -> bool:
        for batch in batches(tuple(drafts)):
            if not await self._writing.write(self._writing.envelope(), batch):
                return False
        return True


def _nodes(beats: Sequence[AgentBeat]) -> set[NodeId]:
    return {beat.node for beat in beats}


def _end(job: Job, late: Mapping[NodeId, str]) -> tuple[Draft, ...]:
    """The catalog and its pointer, whose arrival ends the recovery, in one batch with the record."""
    revision, told = job.revision, f"recovered from {job.told}"
    if late:
        lines = ", ".join(f"{node} ({reason})" for node, reason in late.items())
        told = f"{told}, without {lines[:MOST_TOLD]}"
    pointer = CatalogPointer(
        revision=revision.revision,
        hash=revision.hash,
        author=job.actor.name,
        reason=f"{told}: {job.reason}" if job.reason else told,
    )
    command = job.actor.command
    drafts = (
        Draft(
            subject=subjects.catalog_revision(revision.revision),
            type="catalog.stored",
            document=revision,
            id=EventId(f"{command}-revision"),
            corr=command,
        ),
        Draft(
            subject=subjects.CATALOG,
            type="catalog.recovered",
            document=pointer,
            id=command,
            corr=command,
            together=True,
        ),
    )
    return (*drafts, record("recover", job.reason, job.actor, "accepted", told, "log"))
