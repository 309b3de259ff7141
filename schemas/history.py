"""Frames about the past: what happened, why things are as they are, and the catalogs that were."""

from typing import Literal

from msgspec import Raw, Struct

from schemas.frames import Frame
from schemas.ids import EventId, ModelName
from schemas.texts import Prune, Reason

TargetKind = Literal["node", "replica", "model", "gpu", "command"]
WhyKind = Literal["node", "replica", "model", "gpu"]

MOST_EVENTS = 1000
"""In one answer."""
LONGEST_WAIT_SECONDS = 20.0
"""That an answer about events is put off until there is one."""


class CauseRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of the log, in words."""

    seq: int
    at: str
    """By its writer's clock; of what cannot be read, when the log stored it."""
    type: str
    """`unreadable`: a message that is no event, or one with such a document; `summary` says why."""
    src: str = ""
    """Empty, as `id`: it cannot be read."""
    subject: str
    id: EventId = EventId("")
    cause: EventId | None = None
    corr: EventId | None = None
    summary: str


class EventRow(CauseRow, frozen=True, kw_only=True, rename="camel"):
    """One event of the log with its document."""

    detail: Raw = Raw(b"null")
    """The document as it stands in the log; null where it cannot be read or is over 8 KiB."""
    detail_bytes: int = 0
    """How large the document is."""


class EventList(Frame, frozen=True, kw_only=True, tag="EventList"):
    """A part of the log, in its order. `as_of_seq` is where the log ended then."""

    items: tuple[EventRow, ...]
    next_seq: int
    """Ask from here for what follows: nothing is missed or told twice."""
    end_seq: int
    """What was asked for ends here. Below `next_seq`: this answer was the last part of it."""
    kept_from_seq: int
    kept_from: str
    """When that was stored. Empty: the log is empty."""


class Why(Frame, frozen=True, kw_only=True, tag="Why"):
    """How something came to be as it is, and what did not happen and what it waits for."""

    target: WhyKind
    name: str
    answer: tuple[str, ...]
    """How it is, one line each; the first one is the answer in short."""
    chain: tuple[CauseRow, ...]
    """What led there, the newest first."""
    missing: tuple[str, ...] = ()
    """Where the chain leaves what is kept, or could not be followed."""


class RevisionRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One revision of the catalog that is kept."""

    revision: int
    current: bool
    seq: int
    at: str
    author: str
    """Who made it current, and why; empty: that event is no longer kept."""
    reason: str = ""
    hash: str
    models: int
    added: tuple[ModelName, ...] = ()
    """Against the kept revision before it, here and below."""
    removed: tuple[ModelName, ...] = ()
    changed: tuple[ModelName, ...] = ()


class CatalogHistory(Frame, frozen=True, kw_only=True, tag="CatalogHistory"):
    """The revisions that are kept, the newest first."""

    items: tuple[RevisionRow, ...]


class FieldChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """One value of a model's entry, or of an engine's, that differs."""

    path: str
    """`gpu.count`."""
    old: str = ""
    """As JSON, here and below. Empty: it is not there."""
    new: str = ""


class EntryChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of the catalog that differs."""

    section: Literal["models", "engines"]
    name: str
    change: Literal["added", "removed", "changed"]
    fields: tuple[FieldChange, ...] = ()


class CatalogDiff(Frame, frozen=True, kw_only=True, tag="CatalogDiff"):
    """What differs between two revisions."""

    old: int
    new: int
    items: tuple[EntryChange, ...]


class RollbackCatalog(Struct, frozen=True, kw_only=True, rename="camel"):
    """Make the content of an earlier revision current again, as a new revision."""

    revision: int
    prune: Prune = ()
    prune_all: bool = False
    if_revision: int | None = None
    reason: Reason = ""
