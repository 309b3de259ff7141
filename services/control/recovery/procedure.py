"""Carries a recovery out: begins the new log, waits for the agents, hands over what was known. Shell.

`begin` is asked of a control whose log is damaged, or that leads a log which is recovering and for which
it has nothing on disk; `step` is a turn of whoever leads such a log. What is taken over and in which
order is in `recovery.py`.

How it fails:
- Killed at any point: its disk has what was chosen, and the same control goes on. Where another control
  leads meanwhile, or the disk is gone, the log stays "recovering" until a way is chosen again.
- NATS away, or an answer that does not come: Unavailable, to be asked again; nothing is begun twice,
  since a genesis is written only over the one that stood there.
- Two are asked at once: one genesis wins, the other is refused.
- The server denies what only an administrator may do: refused, with what he has to do.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import structlog

from schemas import subjects
from schemas.documents import CatalogPointer, Genesis
from schemas.frames import Accepted, Frame, Refusal
from schemas.ids import EventId, LogId
from schemas.recovery import Moving, Recover, Recovery
from services.control.commanding.commands import Actor, No, record
from services.control.damage import SeenFile
from services.control.deciding.current import Current
from services.control.deciding.drafts import Draft, batches
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.ears import Ears
from services.control.leader import Leadership
from services.control.opening import FORMAT, Opener
from services.control.recovery.choice import Chosen, Known, choose, ways
from services.control.recovery.handover import (
    base_of,
    carry,
    is_recovering,
    lineage,
    running,
    take_over,
    waits_for,
)
from services.control.recovery.job import Job, JobFile
from services.control.writing import Writing
from services.fleet.catalog import CatalogFaults, from_json
from services.fleet.damage import Found
from services.fleet.state import FleetState
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Denied, Unavailable
from services.log.rebuild import what_is_left
from services.log.streams import LogDamaged

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Recovering:
    """Of one control service."""

    def __init__(
        self,
        connection: Connection,
        leadership: Leadership,
        seen: SeenFile,
        opener: Opener,
        ears: Ears,
        writing: Writing,
        state: Callable[[], FleetState],
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._leadership = leadership
        self._seen = seen
        self._opener = opener
        self._ears = ears
        self._writing = writing
        self._state = state
        self._now = now
        self._file = JobFile(seen.beside("recovery.json"))
        self._memory: FleetState | None = None
        self._current: tuple[LogId, Current] | None = None
        self._lock = asyncio.Lock()

    def lived(self, state: FleetState) -> None:
        """This state was followed to its end: what may be gone on from when its log is lost."""
        if not is_recovering(state):
            self._memory = state

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
        lines = [f"{node}: {reason}" for node, reason in waits.items()]
        if job is None:
            lines.insert(0, "an operator's choice: flotilla journal recover")
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
        known = await self._known() if lost else Known(None, None, ())
        run = running(self._best(known), known.beats)
        return Recovery(
            as_of_seq=self._state().sequence,
            damage=self._opener.damage,
            moving=moving,
            running={model: list(run.values()).count(model) for model in sorted(set(run.values()))},
            ways=ways(known) if lost else (),
        )

    async def _known(self) -> Known:
        state = self._state()
        held = state.genesis.get(())
        below = held.sequence if held is not None and is_recovering(state) else None
        memory = self._memory if self._memory is not None and self._memory.log_id else None
        if memory is not None and is_recovering(memory):
            memory = None  # The new log began while this one was being followed.
        left: FleetState | None
        try:
            left = await what_is_left(self._connection, below)
        except (Unavailable, LogDamaged):
            left = None
        return Known(memory, left, tuple(self._ears.agents()))

    def _best(self, known: Known) -> FleetState:
        return known.memory or known.left or self._state()

    # Its beginning.

    async def begin(self, request: Recover, actor: Actor) -> Frame:
        """Choose a way, and begin the new log if none is begun. Raises Unavailable."""
        async with self._lock:
            state = self._state()
            lost = None if self._opener.damage is None else self._opener.found
            if lost is None and not is_recovering(state):
                return self._refuse(
                    No("not_damaged", "the log is sound: there is nothing to recover")
                )
            heard = self._ears.hearing_seconds()
            if heard < UNREACHABLE_SECONDS:
                return self._refuse(_too_soon(heard))
            known = await self._known()
            found = choose(known, request, running(self._best(known), known.beats))
            if isinstance(found, No):
                return self._refuse(found)
            return await self._take(found, request, actor, known, lost)

    async def _take(
        self,
        chosen: Chosen,
        request: Recover,
        actor: Actor,
        known: Known,
        lost: Found | None,
    ) -> Frame:
        """`lost`: what was judged as damage before anything else was read; None: its log is begun."""
        state = self._state()
        begun = None if lost is not None else state.log_id
        log_id = begun or LogId(secrets.token_hex(16))
        job = Job(
            log=log_id,
            told=chosen.told,
            actor=actor,
            reason=request.reason,
            revision=chosen.revision,
            base=base_of(chosen.base),
        )
        try:
            await self._file.keep(job)
            if lost is not None and (no := await self._found(log_id, known, lost)) is not None:
                self._file.forget()
                return self._refuse(no)
        except OSError as error:
            return self._refuse(No("disk_refuses", "the disk does not take it", why=str(error)))
        log.warning("log.recovering", log_id=log_id, told=chosen.told, actor=actor.name)
        return Accepted(as_of_seq=state.sequence, command=actor.command)

    async def _found(self, log_id: LogId, known: Known, lost: Found) -> No | None:
        """Begin the log. None: it stands."""
        seen = self._seen.seen
        earlier = lineage(
            [None if seen is None else seen.log],
            _logs(known.memory),
            _logs(known.left),
            _logs(self._state()),
            self._ears.followed().values(),
            [None if lost.genesis is None else lost.genesis.log_id],
        )
        genesis = Genesis(log_id=log_id, format=FORMAT, parent=earlier[0], ancestors=earlier)
        highest = max(
            0 if seen is None else seen.highest,
            *(report.highest for report in self._ears.reports()),
            self._state().sequence,
        )
        try:
            stands = await self._opener.begin_anew(lost, genesis, highest, self._leadership)
        except Denied as error:
            # LOG ends below STATE. Without it, it is made anew above STATE, which is kept.
            remedy = f"nats stream rm {subjects.LOG}"
            return No("denied", "an administrator must make room", why=str(error), next=remedy)
        except (ApiError, LogDamaged) as error:
            return No("log_refuses", "no new log can be begun", why=str(error))
        return None if stands else No("changed_meanwhile", "the log was changed meanwhile")

    def _refuse(self, no: No) -> Refusal:
        log.warning("recover.refused", code=no.code, reason=no.message)
        return Refusal(
            as_of_seq=self._state().sequence,
            code=no.code,
            message=no.message,
            why=no.why,
            next=no.next,
            faults=no.faults,
        )

    # Its course.

    async def step(self, decide: Callable[[], Awaitable[bool]]) -> None:
        """As far as it goes now. `decide` makes one pass by `current`; False: not all of it stands."""
        state = self._state()
        job, current = self._job(state), self.current(state)
        if job is None or current is None:
            return
        beats = self._ears.agents()
        if self._ears.hearing_seconds() < UNREACHABLE_SECONDS or waits_for(state, beats):
            return
        beating = {beat.node for beat in beats}
        if not await self._write(carry(state, job.base, beating)):
            return
        models, number = current.catalog.models, job.revision.revision
        drafts = take_over(state, job.base, models, beating, number, self._now())
        if await self._write(drafts) and await decide() and await self._write(_end(job)):
            log.warning("log.recovered", log_id=job.log, told=job.told)
            self._file.forget()

    async def _write(self, drafts: Sequence[Draft]) -> bool:
        for batch in batches(tuple(drafts)):
            if not await self._writing.write(self._writing.envelope(), batch):
                return False
        return True


def _too_soon(heard_seconds: float) -> No:
    """What runs is not known yet: a catalog without it would end it."""
    return No(
        "not_heard_yet",
        f"agents are listened to for {heard_seconds:.1f} s; it takes {UNREACHABLE_SECONDS:g} s",
        why="what runs is not known yet",
        next="flotilla journal recover",
    )


def _logs(state: FleetState | None) -> list[LogId]:
    held = None if state is None else state.genesis.get(())
    return [] if held is None else [held.document.log_id, *held.document.ancestors]


def _end(job: Job) -> tuple[Draft, ...]:
    """The catalog and its pointer, whose arrival ends the recovery, in one batch with the record."""
    revision, told = job.revision, f"recovered from {job.told}"
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
