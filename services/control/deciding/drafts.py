"""What a pass decided, as drafts of events: collected in any order, handed out in a safe one.

Every prefix of the result is safe to stand alone in the log (a decision of more than one batch may be
cut by a crash): verdicts; endpoints, so that routers are told first; what ends, before what takes its
place; replicas before the assignments that name them; placement verdicts, which nobody acts on.
"""

import hashlib
from enum import IntEnum

from msgspec import Struct

from schemas.documents import Document
from schemas.ids import EventId
from services.fleet.state import FleetState


class Order(IntEnum):
    """Lower goes first."""

    VERDICT = 0
    ENDPOINTS = 1
    GONE = 2
    RELEASE = 3
    TAKE = 4
    ASSIGNMENT = 5
    PLACEMENT = 6


class Draft(Struct, frozen=True, kw_only=True):
    """One document to write."""

    subject: str
    type: str
    document: Document
    id: EventId
    cause: EventId | None = None
    corr: EventId | None = None
    together: bool = False
    """Must stand in one batch with the draft before it."""
    optional: bool = False
    """May be skipped by a reader that does not know its family."""


class Drafts:
    """Collects a pass' documents; the last one of a subject wins and keeps the first one's id."""

    def __init__(self, state: FleetState) -> None:
        """Ids are the same for the same state, and nobody knows them who may not read the epoch document:
        LOG takes an id once, so whoever wrote under the next ones first would keep the leader from
        writing.
        """
        epoch = state.epoch.get(())
        secret = b"" if epoch is None else epoch.event.encode()
        mark = hashlib.sha256(b"%s %d" % (secret, state.sequence)).hexdigest()[:12]
        self._prefix = f"{state.fence}-{state.sequence}-{mark}"
        self._found: dict[str, tuple[Order, Draft]] = {}

    def put(
        self,
        order: Order,
        subject: str,
        type_: str,
        document: Document,
        *,
        cause: EventId | None = None,
        corr: EventId | None = None,
        together: bool = False,
    ) -> EventId:
        """Returns the id under which the document will stand in the log."""
        before = self._found.get(subject)
        id_ = EventId(f"{self._prefix}-{len(self._found)}") if before is None else before[1].id
        draft = Draft(
            subject=subject,
            type=type_,
            document=document,
            id=id_,
            cause=cause,
            corr=corr,
            together=together,
        )
        self._found[subject] = (order, draft)
        return id_

    def __contains__(self, subject: str) -> bool:
        return subject in self._found

    def document(self, subject: str) -> Document | None:
        """What the pass will write there, if anything."""
        found = self._found.get(subject)
        return None if found is None else found[1].document

    def ordered(self) -> tuple[Draft, ...]:
        """By order, then as they were put."""
        return tuple(draft for _, draft in sorted(self._found.values(), key=lambda item: item[0]))


def batches(drafts: tuple[Draft, ...], largest: int = 500) -> list[tuple[Draft, ...]]:
    """Cut into atomic batches; drafts that belong together are not cut apart."""
    groups: list[list[Draft]] = []
    for draft in drafts:
        if draft.together and groups:
            groups[-1].append(draft)
        else:
            groups.append([draft])
    cut: list[tuple[Draft, ...]] = []
    for group in groups:
        if cut and len(cut[-1]) + len(group) <= largest:
            cut[-1] += tuple(group)
        else:
            cut.append(tuple(group))
    return cut
