"""What control's beat says: that it leads and how far it is, or that its log is damaged. Pure."""

from schemas import subjects
from schemas.api import Damage
from schemas.beats import ControlBeat
from services.control.leader import Leadership
from services.fleet.damage import Seen
from services.fleet.state import FleetState


def own_beat(
    leadership: Leadership,
    state: FleetState,
    seen: Seen | None,
    damage: Damage | None,
    *,
    leading: bool,
) -> ControlBeat | None:
    """None: it has nothing to say. A damaged control's beat keeps nobody from leading."""
    log_id = state.log_id or (None if seen is None else seen.log)
    if log_id is None or not (leading or damage):
        return None
    return ControlBeat(
        control=leadership.control,
        incarnation=leadership.incarnation,
        epoch=leadership.fence,
        log=log_id,
        head=state.sequence,
        routing=newest_routing(state),
        damaged="" if damage is None else damage.reason,
    )


def newest_routing(state: FleetState) -> int:
    """Newest LOG sequence of any document that routers follow, retired ones included."""
    tables = (state.catalog, state.revisions, state.endpoints)
    held = [h.sequence for table in tables for h in table.values()]
    prefix = subjects.ALL_ENDPOINTS.removesuffix(">")
    gone = [h.sequence for subject, h in state.gone.items() if subject.startswith(prefix)]
    return max(held + gone, default=0)
