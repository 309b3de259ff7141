"""Ids of what a pass decides."""

from schemas import subjects
from schemas.documents import ControlEpoch
from schemas.ids import ControlId
from services.control.deciding.drafts import Drafts, Order
from services.fleet.state import FleetState
from tests.builders import a_genesis, a_verdict, an_event, subject_of


def ids(claim: str) -> list[str]:
    """Of two drafts, in a log that differs in the id of its leader's claim alone."""
    state = FleetState()
    state.apply(1, subjects.GENESIS, an_event(a_genesis()))
    epoch = ControlEpoch(holder=ControlId("control-1"), incarnation="x")
    state.apply(2, subjects.CONTROL_EPOCH, an_event(epoch, id_=claim))
    drafts = Drafts(state)
    documents = (a_verdict("node-1"), a_verdict("node-2"))
    return [drafts.put(Order.VERDICT, subject_of(each), "node.lost", each) for each in documents]


# spec: L4 S1
def test_ids_are_the_same_for_the_same_state_and_told_by_no_number() -> None:
    """LOG takes an id once: whoever knew the next ones could keep the leader from writing."""
    one, other = ids("claim-1"), ids("claim-2")
    assert one == ids("claim-1")
    assert len(set(one)) == 2
    assert not set(one) & set(other)
