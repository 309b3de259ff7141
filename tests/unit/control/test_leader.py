import pytest

from schemas import subjects
from schemas.beats import ControlBeat
from schemas.documents import ControlEpoch
from schemas.ids import ControlId
from services.control.leader import MOST_EPOCHS, RENEW_SECONDS, Leadership
from tests.builders import AT, LOG_ID, Script, an_event, at

ME, OTHER = ControlId("control-1"), ControlId("control-2")


def a_log(*holders: ControlId) -> Script:
    script = Script()
    for holder in holders:
        script.put(subjects.CONTROL_EPOCH, ControlEpoch(holder=holder, incarnation="x"))
    return script


def me() -> Leadership:
    return Leadership(ME, "start-2", "127.0.0.1:7400")


def a_beat(
    epoch: int,
    incarnation: str = "other",
    damaged: str = "",
    *,
    leading: bool = True,
    resigned: bool = False,
) -> ControlBeat:
    return ControlBeat(
        control=OTHER,
        leading=leading,
        resigned=resigned,
        incarnation=incarnation,
        epoch=epoch,
        log=LOG_ID,
        head=9,
        routing=0,
        damaged=damaged,
    )


def test_claims_at_once_where_nobody_ever_led() -> None:
    assert me().should_claim(a_log().state, None, 0.0)


# spec: L2
def test_claims_at_once_what_it_held_before_its_restart() -> None:
    assert me().should_claim(a_log(ME).state, None, 0.0)


# spec: L7
def test_another_leader_is_given_a_second_and_a_half_to_be_heard() -> None:
    leadership, state = me(), a_log(OTHER).state
    assert not leadership.should_claim(state, 100.0, 100.0)
    assert not leadership.should_claim(state, 100.0, 101.4)
    assert leadership.should_claim(state, 100.0, 101.5)


# spec: L7
def test_a_leader_that_beats_keeps_the_lead() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.should_claim(state, 0.0, 0.0)
    leadership.heard(a_beat(state.fence), 100.0)
    assert not leadership.should_claim(state, 0.0, 101.4)
    assert leadership.should_claim(state, 0.0, 101.5)


# spec: L7
def test_a_late_beat_of_a_superseded_leader_hides_no_beat_of_the_present_one() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.should_claim(state, 0.0, 0.0)
    leadership.heard(a_beat(state.fence), 100.0)
    leadership.heard(a_beat(state.fence - 1), 100.5)
    assert not leadership.should_claim(state, 0.0, 101.4)


# spec: L7
def test_beats_of_a_superseded_or_damaged_leader_keep_nobody_waiting() -> None:
    leadership, script = me(), a_log(OTHER)
    leadership.should_claim(script.state, 0.0, 0.0)
    leadership.heard(a_beat(script.state.fence - 1), 100.0)
    leadership.heard(a_beat(script.state.fence, damaged="another log"), 100.0)
    assert leadership.should_claim(script.state, 0.0, 100.0)


# spec: L3
def test_a_standby_that_cannot_hear_claims_nothing() -> None:
    leadership, state = me(), a_log(OTHER).state
    assert not leadership.should_claim(state, None, 1000.0)


def test_a_new_leader_is_given_time_for_its_first_beat() -> None:
    leadership, script = me(), a_log(OTHER)
    leadership.should_claim(script.state, 0.0, 0.0)
    script.put(subjects.CONTROL_EPOCH, ControlEpoch(holder=OTHER, incarnation="y"))
    assert not leadership.should_claim(script.state, 0.0, 500.0)
    assert leadership.should_claim(script.state, 0.0, 501.5)


def test_leads_once_it_has_followed_the_log_to_its_own_claim() -> None:
    leadership, script = me(), a_log()
    leadership.claimed(2, 0.0)
    assert not leadership.leads(script.state)
    script.put(subjects.CONTROL_EPOCH, leadership.document(script.state, AT))
    assert leadership.leads(script.state)
    script.put(subjects.CONTROL_EPOCH, ControlEpoch(holder=OTHER, incarnation="y"))
    assert not leadership.leads(script.state)


def test_two_of_one_name_do_not_take_the_lead_from_each_other_for_ever() -> None:
    leadership, script = me(), a_log(ME)
    leadership.claimed(script.state.fence, 0.0)
    leadership.fell()
    assert not leadership.should_claim(script.state, 0.0, 100.0)
    assert leadership.should_claim(script.state, 0.0, 101.5)


def test_the_holder_claims_anew_once_a_day() -> None:
    leadership, script = me(), a_log(ME)
    leadership.claimed(script.state.fence, 0.0)
    assert not leadership.should_claim(script.state, 0.0, RENEW_SECONDS - 1)
    assert leadership.should_claim(script.state, 0.0, RENEW_SECONDS)


def test_another_log_is_claimed_from_the_beginning() -> None:
    leadership = me()
    leadership.claimed(7, 0.0)
    leadership.heard(a_beat(900), 0.0)
    leadership.begin()
    assert leadership.should_claim(a_log().state, 0.0, 0.0)
    state = a_log(OTHER).state
    assert not leadership.should_claim(state, 0.0, 10.0)
    leadership.heard(a_beat(state.fence), 11.0)
    assert not leadership.should_claim(state, 0.0, 12.4)


# spec: L7
def test_a_leader_that_resigns_is_followed_at_once_also_by_who_hears_nothing_else() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.should_claim(state, 0.0, 0.0)
    leadership.heard(a_beat(state.fence), 100.0)
    leadership.heard(a_beat(state.fence, leading=False, resigned=True), 100.1)
    assert leadership.should_claim(state, 0.0, 100.1)
    assert leadership.should_claim(state, None, 100.1)


# spec: L7
def test_who_resigned_an_earlier_epoch_says_nothing_of_this_one() -> None:
    leadership, script = me(), a_log(OTHER)
    leadership.heard(a_beat(script.state.fence, leading=False, resigned=True), 100.0)
    script.put(subjects.CONTROL_EPOCH, ControlEpoch(holder=OTHER, incarnation="y"))
    assert not leadership.should_claim(script.state, 0.0, 100.1)


# spec: L7
def test_a_standbys_beat_keeps_nobody_from_claiming() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.should_claim(state, 0.0, 0.0)
    leadership.heard(a_beat(0, "third", leading=False), 100.0)
    leadership.heard(a_beat(state.fence, leading=False), 100.0)
    assert leadership.should_claim(state, 0.0, 100.0)


# spec: L7
def test_one_who_has_claimed_and_is_not_yet_followed_so_far_is_given_its_time() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.should_claim(state, 0.0, 0.0)
    leadership.heard(a_beat(state.fence + 7), 100.0)
    assert not leadership.should_claim(state, 0.0, 101.4)


# spec: L7
def test_a_single_beat_of_an_epoch_that_never_was_hides_no_leader() -> None:
    leadership, state = me(), a_log(OTHER).state
    leadership.heard(a_beat(1 << 40, "garbage"), 100.0)
    leadership.heard(a_beat(state.fence), 110.0)
    assert not leadership.should_claim(state, 0.0, 111.4)


def test_beats_of_many_epochs_take_bounded_room() -> None:
    leadership, state = me(), a_log(OTHER).state
    for epoch in range(state.fence, state.fence + 10 * MOST_EPOCHS):
        leadership.heard(a_beat(epoch), 100.0)
    leadership.heard(a_beat(state.fence), 100.0)
    assert len(leadership.heard_epochs) == MOST_EPOCHS
    assert state.fence in leadership.heard_epochs


def test_holds_what_it_claimed_also_before_it_has_followed_so_far() -> None:
    leadership, script = me(), a_log(OTHER)
    fence = script.state.fence + 1
    assert not leadership.holds(script.state)
    leadership.claimed(fence, 0.0)
    assert leadership.holds(script.state)
    assert not leadership.leads(script.state)
    script.put(subjects.CONTROL_EPOCH, leadership.document(script.state, AT))
    assert leadership.leads(script.state)
    script.put(subjects.CONTROL_EPOCH, ControlEpoch(holder=OTHER, incarnation="y"))
    assert not leadership.holds(script.state)


# spec: O1
def test_who_renews_its_claim_has_led_since_the_first_one() -> None:
    leadership, script = me(), a_log(OTHER)
    first = leadership.document(script.state, at(0))
    assert first.since == at(0)
    leadership.claimed(script.put(subjects.CONTROL_EPOCH, first), 0.0)
    assert leadership.document(script.state, at(60)).since == at(0)
    leadership.fell()
    assert leadership.document(script.state, at(90)).since == at(90)


# spec: L5 L7
@pytest.mark.parametrize("junk", [b"no event", an_event({}, version=99)], ids=["junk", "newer"])
def test_a_leader_claims_anew_at_once_where_its_epoch_cannot_be_read(junk: bytes) -> None:
    """Nobody else puts that right, and under it no batch of its would be taken."""
    script = a_log(ME)
    leadership, sequence = me(), len(script.log)
    leadership.claimed(sequence, 0.0)
    assert not leadership.should_claim(script.state, 0.0, 1.0)
    script.state.apply(sequence + 1, subjects.CONTROL_EPOCH, junk)
    assert leadership.leads(script.state)
    assert leadership.should_claim(script.state, 0.0, 1.0)
