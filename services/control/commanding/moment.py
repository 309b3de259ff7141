"""What a command is planned on, and what a plan is. Pure."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from schemas.frames import Frame
from services.control.deciding.current import Current
from services.control.deciding.drafts import Draft
from services.fleet.state import FleetState


class Moment(Struct, frozen=True):
    """One state, one catalog."""

    state: FleetState
    current: Current


class Planned(Struct, frozen=True):
    """What a command writes, as one batch, and its answer once that stands in the log at a sequence."""

    drafts: Sequence[Draft]
    answer: Callable[[int], Frame]


Plan = Callable[[Moment], Planned]
