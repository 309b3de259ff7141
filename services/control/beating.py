"""What control's beat says: how far it is, whether it holds the lead, or that its log is damaged. Pure."""

from schemas import subjects
from schemas.beats import ControlBeat
from schemas.recovery import Damage
from services.control.leader import Leadership
from services.fleet.damage import Seen
from services.fleet.state import FleetState

_ROUTING = (
    subjects.CATALOG,
    subjects.ALL_REVISIONS.removesuffix("*"),
    subjects.ALL_ENDPOINTS.removesuffix(">"),
)


def own_beat(
    leadership: Leadership,
    state: FleetState,
    seen: Seen | None,
    damage: Damage | None,
    *,
    routing: int,
    holding: bool,
    resigned: bool = False,
) -> ControlBeat | None:
    """None: it knows no log. A damaged control's beat keeps nobody from leading.

    `holding`: it claimed and writes. `routing`: see `is_routing`.
    """
    log_id = state.log_id or (None if seen is None else seen.log)
    if log_id is None:
        return None
    return ControlBeat(
        control=leadership.control,
        incarnation=leadership.incarnation,
        leading=holding and damage is None,
        resigned=resigned,
        epoch=leadership.fence,
        log=log_id,
        head=state.sequence,
        routing=routing,
        damaged="" if damage is None else damage.reason,
    )


def is_routing(subject: str) -> bool:
    """Whether routers follow this log subject."""
    return subject.startswith(_ROUTING)


def newest_routing(state: FleetState) -> int:
    """Newest LOG sequence of any document that routers follow, retired ones included."""
    tables = (state.catalog, state.revisions, state.endpoints)
    held = [h.sequence for table in tables for h in table.values()]
    gone = [h.sequence for subject, h in state.gone.items() if is_routing(subject)]
    return max(held + gone, default=0)
