"""Begins a recovery: what is known of the lost log, the way chosen, the new log. Shell.

It is asked of a control whose log is damaged, or that leads a log which is recovering and for which it
has nothing on disk. `procedure.py` carries it on.

How it fails:
- NATS away, or an answer that does not come: Unavailable, to be asked again; nothing is begun twice,
  since a genesis is written only over the one that stood there.
- Two are asked at once: one genesis wins, the other is refused.
- Another control claims between our genesis and our claim: refused, and that one is asked for a way.
- The server denies what only an administrator may do: refused, with what he has to do.
- The disk refuses to keep what was chosen: refused, before anything was begun.
"""

import asyncio
import secrets
from collections.abc import Callable

import structlog

from schemas import subjects
from schemas.documents import Genesis
from schemas.frames import Accepted, Frame, Refusal
from schemas.ids import LogId
from schemas.recovery import Recover
from services.control.commanding.commands import Actor, No
from services.control.damage import SeenFile
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.ears import Ears
from services.control.leader import Leadership
from services.control.opening import FORMAT, Opener
from services.control.recovery import succession
from services.control.recovery.choice import VERB, Chosen, Known, choose
from services.control.recovery.handover import base_of, is_recovering, running
from services.control.recovery.job import Job, JobFile
from services.fleet.damage import Found
from services.fleet.state import FleetState
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.message import Denied, Unavailable
from services.log.rebuild import what_is_left
from services.log.streams import LogDamaged

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Beginning:
    """Of one control service."""

    def __init__(
        self,
        connection: Connection,
        leadership: Leadership,
        seen: SeenFile,
        opener: Opener,
        ears: Ears,
        state: Callable[[], FleetState],
        file: JobFile,
    ) -> None:
        self._connection = connection
        self._leadership = leadership
        self._seen = seen
        self._opener = opener
        self._ears = ears
        self._state = state
        self._file = file
        self._memory: FleetState | None = None
        self._lock = asyncio.Lock()

    def lived(self, state: FleetState) -> None:
        """This state was followed to its end: what may be gone on from when its log is lost."""
        if not is_recovering(state):
            self._memory = state

    async def known(self) -> Known:
        """What there is to go on from."""
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
        return Known(memory, left, tuple(self._ears.agents()), self._seen.nodes)

    def best(self, known: Known) -> FleetState:
        """What says most of what runs."""
        return known.memory or known.left or self._state()

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
            known = await self.known()
            found = choose(known, request, running(self.best(known), known.beats))
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
        except OSError as error:
            return self._refuse(No("disk_refuses", "the disk does not take it", why=str(error)))
        if lost is not None and (no := await self._found(log_id, known, lost)) is not None:
            await self._file.forget()
            return self._refuse(no)
        log.warning("log.recovering", log_id=log_id, told=chosen.told, actor=actor.name)
        return Accepted(as_of_seq=state.sequence, command=actor.command)

    async def _found(self, log_id: LogId, known: Known, lost: Found) -> No | None:
        """Begin the log. None: it stands, and we lead it."""
        earlier = self._earlier(known, lost)
        genesis = Genesis(log_id=log_id, format=FORMAT, parent=earlier[0], ancestors=earlier)
        try:
            begun = await self._opener.begin_anew(
                lost, genesis, self._highest(known), self._leadership
            )
        except Denied as error:
            # LOG ends below STATE. Without it, it is made anew above STATE, which is kept.
            remedy = f"nats stream rm {subjects.LOG}"
            return No("denied", "an administrator must make room", why=str(error), next=remedy)
        except (ApiError, LogDamaged) as error:
            return No("log_refuses", "no new log can be begun", why=str(error))
        match begun:
            case "begun":
                return None
            case "changed":
                return No("changed_meanwhile", "the log was changed meanwhile", next=VERB)
            case "led_by_another":
                why = "the new log is begun, and knows of no way yet"
                return No("led_by_another", "another control leads by now", why=why, next=VERB)

    def _earlier(self, known: Known, lost: Found) -> tuple[LogId, ...]:
        seen = self._seen.seen
        return succession.lineage(
            [None if seen is None else seen.log],
            succession.of_state(known.memory),
            succession.of_state(known.left),
            succession.of_state(self._state()),
            succession.followed(self._ears.followed(), self._opener.doubted),
            [None if lost.genesis is None else lost.genesis.log_id],
        )

    def _highest(self, known: Known) -> int:
        seen, states = self._seen.seen, (known.memory, known.left, self._state())
        own = max(0 if state is None else state.sequence for state in states)
        own = max(own, 0 if seen is None else seen.highest)
        return succession.highest(own, self._ears.reports(), self._opener.doubted)

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


def _too_soon(heard_seconds: float) -> No:
    """What runs is not known yet: a catalog without it would end it."""
    return No(
        "not_heard_yet",
        f"agents are listened to for {heard_seconds:.1f} s; it takes {UNREACHABLE_SECONDS:g} s",
        why="what runs is not known yet",
        next=VERB,
    )
