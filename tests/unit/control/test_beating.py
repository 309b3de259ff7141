"""What a control says of itself."""

from schemas.documents import Gone
from schemas.ids import ControlId
from schemas.recovery import Damage
from services.control.beating import is_routing, newest_routing, own_beat
from services.control.leader import Leadership
from services.fleet.damage import Seen
from services.fleet.state import FleetState
from tests.builders import LOG_ID, Script, a_node, a_pointer

ME = Leadership(ControlId("control-1"), "start-1", "127.0.0.1:7400")
DAMAGE = Damage(reason="another log", since="")


# spec: L7
def test_a_standby_says_how_far_it_is_and_that_it_does_not_lead() -> None:
    state = Script(a_node()).state
    beat = own_beat(ME, state, None, None, routing=0, holding=False)
    assert beat is not None
    assert (beat.leading, beat.epoch, beat.head, beat.log) == (False, 0, state.sequence, LOG_ID)


# spec: L7
def test_whose_log_is_damaged_leads_nothing_and_says_why() -> None:
    beat = own_beat(ME, FleetState(), Seen(LOG_ID, 7), DAMAGE, routing=0, holding=True)
    assert beat is not None
    assert (beat.leading, beat.damaged, beat.log) == (False, "another log", LOG_ID)


def test_who_knows_no_log_says_nothing() -> None:
    assert own_beat(ME, FleetState(), None, None, routing=0, holding=False) is None


def test_routers_follow_catalogs_and_endpoints_also_retired_ones() -> None:
    script = Script(a_pointer())
    assert newest_routing(script.state) == script.state.sequence
    last = script.put("flotilla.log.s.endpoints.tiny.00", Gone(id="tiny"))
    script.add(a_node())
    assert newest_routing(script.state) == last
    assert is_routing("flotilla.log.s.catalog")
    assert is_routing("flotilla.log.s.catalog.rev.7")
    assert not is_routing("flotilla.log.s.replica.tiny.0")
