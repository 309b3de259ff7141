"""What every answer of the management API is framed in, and the answers that all its parts share."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from schemas.ids import EventId

API_VERSION = "flotilla/v1"

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""Each may do all that the ones before it may."""


class Frame(Struct, frozen=True, kw_only=True, tag_field="kind", rename="camel"):
    """What every answer says beside its content."""

    as_of_seq: int
    """LOG sequence that the answer was computed at."""
    as_of: str | UnsetType = UNSET
    """There: the answer is of the past, as it was at this time (RFC 3339, UTC)."""
    api_version: str = API_VERSION


class Accepted(Frame, frozen=True, kw_only=True, tag="Accepted"):
    """The command stands in the log."""

    command: EventId
    revision: int = 0
    changed: bool = True
    """False: the fleet was so already; nothing was written."""


class Fault(Struct, frozen=True, kw_only=True, rename="camel"):
    """One fault of a catalog or setting, with its place."""

    file: str = ""
    line: int = 0
    """From 1; 0: no place."""
    column: int = 0
    path: str = ""
    """`models.llama-70b.replicas`."""
    message: str
    hint: str = ""


class Refusal(Frame, frozen=True, kw_only=True, tag="Refusal"):
    """The answer is no. `code` is stable, `message` is for people, `next` can be typed."""

    code: str
    message: str
    why: str = ""
    next: str = ""
    faults: tuple[Fault, ...] = ()
