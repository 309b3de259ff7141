"""Whether who beats follows this log, and has told it all that it runs. Pure."""

from schemas.beats import AgentBeat
from services.fleet.state import FleetState


def untold(state: FleetState, beat: AgentBeat) -> str:
    """What an agent has not told this log yet; empty: nothing.

    Until then it obeys nothing of it, and what the log holds of its node may be another's word.
    """
    if beat.log != state.log_id:  # What it holds, it says once it has moved over.
        return f"follows log {beat.log or 'none'}"
    info = state.info(beat.node)
    if info is None or info.document.incarnation != beat.incarnation:
        return "has not described itself in the new log"
    left = [
        replica
        for replica in beat.held or ()
        if not any(held.document.node == beat.node for held in state.shards_of(replica))
    ]
    return f"has not reported {', '.join(left)}" if left else ""
