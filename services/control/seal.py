"""Drafts and documents become events as they stand in the log."""

from msgspec import Struct

from schemas import codec
from schemas.documents import Document
from schemas.events import Event, log_prefix
from schemas.ids import ControlId, EventId, LogId
from schemas.versions import version_of
from services.control.deciding.drafts import Draft
from services.log.append import Sealed


class Envelope(Struct, frozen=True, kw_only=True):
    """What all events of one turn share."""

    log: LogId
    control: ControlId
    now: float
    """Seconds since 1970, the fleet's clock."""
    seen: int
    epoch: int

    def seal(
        self,
        subject: str,
        type_: str,
        document: Document,
        id_: EventId,
        *,
        cause: EventId | None = None,
        corr: EventId | None = None,
        optional: bool = False,
    ) -> Sealed:
        """One event."""
        event = Event(
            id=id_,
            log=log_prefix(self.log),
            type=type_,
            v=version_of(type(document)),
            at=codec.rfc3339(self.now),
            src=f"control/{self.control}",
            corr=corr,
            cause=cause,
            seen=self.seen,
            epoch=self.epoch,
            opt=optional,
            data=codec.raw(document),
        )
        return Sealed(subject, id_, codec.encode(event))

    def draft(self, draft: Draft) -> Sealed:
        """An event that a pass decided."""
        return self.seal(
            draft.subject,
            draft.type,
            draft.document,
            draft.id,
            cause=draft.cause,
            corr=draft.corr,
            optional=draft.optional,
        )
