"""How agents and routers write their documents: one write in flight a subject, the newest value wins.

Each write expects what this writer's previous one left on the subject, so that two machines under one
name cannot both write, and a delayed write never overwrites a newer one.

How it fails:
- The ack is lost, or NATS is away: the same event goes again until its fate is known. Values put
  meanwhile wait behind it, and only the newest of them is written.
- Another's document stands on the subject, also at the first write: `may_replace` is asked. No: the
  value is dropped, and the next `put` asks again.
- LOG's age has removed the document: the next write expects an empty subject.
- The server refuses for another reason, or NATS denies the subject: it is said, and tried again.
"""

import asyncio
from collections.abc import Callable

import structlog
from msgspec import Raw, Struct

from schemas import codec
from schemas.documents import Document
from schemas.events import Event, log_prefix
from schemas.ids import EventId, LogId
from schemas.versions import version_of
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.event_ids import new_event_id
from services.log.guarded import MAX_EVENT_BYTES, Refused, Sealed, write
from services.log.message import Denied, Unavailable
from services.log.snapshot import get_from_log
from services.log.stored import Stored

log = structlog.get_logger()

ENVELOPE_BYTES = 4096
"""Room that is kept for the envelope."""
RETRY_SECONDS = 0.1
REFUSED_SECONDS = 2.0


class _Draft(Struct, frozen=True):
    """A value to write."""

    event_type: str
    version: int
    data: Raw
    cause: EventId | None
    seen: int


class Writer:
    """Of one program and one log. `run` in a task of its own."""

    def __init__(
        self,
        connection: Connection,
        *,
        source: str,
        log_id: LogId,
        now: Callable[[], float],
        may_replace: Callable[[Stored], bool],
    ) -> None:
        """`source`: `agent/<node>` or `router/<id>`. `now`: wall clock in seconds, for display.

        `may_replace` is called with a document that this writer has not written and that stands where
        it is about to write: from an earlier incarnation, from the leader, or from another machine.
        """
        self._connection = connection
        self._source = source
        self._log_id = log_id
        self._now = now
        self._may_replace = may_replace
        self._waiting: dict[str, _Draft] = {}
        self._writing: set[str] = set()
        self._standing: dict[str, int] = {}
        """LOG sequence of what stands on each subject, as far as this writer knows."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(
        self,
        subject: str,
        event_type: str,
        document: Document,
        cause: EventId | None = None,
        seen: int = 0,
    ) -> None:
        """Write this value as soon as may be. Returns at once. Raises ValueError if it is too large.

        `seen`: LOG sequence that had been applied when it was decided.
        """
        data = codec.raw(document)
        if len(bytes(data)) > MAX_EVENT_BYTES - ENVELOPE_BYTES:
            raise ValueError(f"{subject}: a document of {len(bytes(data))} bytes is too large")
        self._waiting[subject] = _Draft(event_type, version_of(type(document)), data, cause, seen)
        self._idle.clear()
        self._wake.set()

    async def idle(self) -> None:
        """Returns once all that was put stands in the log, was overtaken or dropped."""
        await self._idle.wait()

    def standing(self, subject: str) -> int:
        """LOG sequence of this writer's document there; 0 before it was written."""
        return self._standing.get(subject, 0)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for subject in [each for each in self._waiting if each not in self._writing]:
                    self._writing.add(subject)
                    group.create_task(self._write_all(subject))

    async def _write_all(self, subject: str) -> None:
        """Until nothing waits for this subject."""
        while (draft := self._waiting.pop(subject, None)) is not None:
            await self._write(self._seal(subject, draft))
        self._writing.discard(subject)
        if not self._waiting and not self._writing:
            self._idle.set()

    def _seal(self, subject: str, draft: _Draft) -> Sealed:
        now = self._now()
        event = Event(
            id=new_event_id(now),
            log=log_prefix(self._log_id),
            type=draft.event_type,
            v=draft.version,
            at=codec.rfc3339(now),
            src=self._source,
            cause=draft.cause,
            seen=draft.seen,
            data=draft.data,
        )
        return Sealed(subject, event.id, codec.encode(event))

    async def _write(self, event: Sealed) -> None:
        """Until it stands in the log, or must not."""
        while True:
            try:
                if await self._settled(event):
                    return
            except (ApiError, Denied) as error:
                log.warning("log.write.refused", subject=event.subject, reason=str(error))
                await asyncio.sleep(REFUSED_SECONDS)
            except Unavailable:
                await asyncio.sleep(RETRY_SECONDS)
                await self._connection.wait_connected()

    async def _settled(self, event: Sealed) -> bool:
        """One try. False: the subject was not as expected, and it may be tried again."""
        subject = event.subject
        if subject not in self._standing and not await self._first_look(subject):
            return True
        outcome = await write(self._connection, event, self._standing[subject])
        if isinstance(outcome, Refused):
            return not self._accept(subject, outcome.standing)
        self._standing[subject] = outcome.sequence
        return True

    async def _first_look(self, subject: str) -> bool:
        return self._accept(subject, await get_from_log(self._connection, subject))

    def _accept(self, subject: str, standing: Stored | None) -> bool:
        """Whether to write over what stands there."""
        if standing is not None and not self._may_replace(standing):
            self._standing.pop(subject, None)
            log.warning("log.write.dropped", subject=subject, standing=standing.sequence)
            return False
        self._standing[subject] = standing.sequence if standing is not None else 0
        return True
