"""The envelope around every event on the log."""

from msgspec import Raw, Struct

from schemas.ids import EventId, LogId

LOG_ID_PREFIX = 8


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One event as it stands in the log: readable JSON.

    On state subjects the subject's family picks the struct of `data`; `type` is a label of what
    happened and is never needed to fold.
    """

    id: EventId
    log: str
    """First 8 characters of the log id."""
    type: str
    """A dotted past-tense tag: `replica.placed`."""
    v: int = 1
    """Version of the document in `data`; see `schemas.versions`."""
    at: str
    """RFC 3339, UTC, microseconds. Control's is the clock of the fleet, all others are for display."""
    src: str
    """`control/<id>`, `agent/<node>` or `router/<id>`."""
    corr: EventId | None = None
    """The command at the root of the chain of causes."""
    cause: EventId | None = None
    """The event acted on."""
    seen: int = 0
    """LOG sequence that the writer had applied when it decided."""
    epoch: int = 0
    """The fence of the control service that wrote it; 0 from anybody else."""
    opt: bool = False
    """May be skipped by a reader that does not know its family or version."""
    data: Raw


def log_prefix(log_id: LogId) -> str:
    """What `Event.log` holds for a log."""
    return log_id[:LOG_ID_PREFIX]
