"""The mass-silence brake on the management API."""

from typing import Literal

from msgspec import Struct

from schemas.frames import Frame
from schemas.texts import Reason


class BrakeRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """The brake while it is on."""

    since: str
    silent: int
    """Nodes that had fallen silent when it was engaged, of `nodes`."""
    nodes: int
    still_silent: int
    """Nodes that are unreachable now."""
    replicas_held: int
    """Replicas on silent nodes, lost ones included, that are neither given up nor rebuilt."""
    calm_since: str = ""
    """Since when less than a quarter has been silent; empty: more is."""


class BrakeView(Frame, frozen=True, kw_only=True, tag="Brake"):
    """Whether nobody is given up at the moment, and why."""

    engaged: bool
    brake: BrakeRow | None = None
    released_at: str = ""
    """When it was last released; empty: it is on, or never was."""
    released_by: str = ""
    """The command that released it; empty: it ended by itself."""


class ReleaseBrake(Struct, frozen=True, kw_only=True, rename="camel"):
    """End the brake: what is silent now may be given up. It engages anew for another silence."""

    state: Literal["off"]
    reason: Reason = ""
