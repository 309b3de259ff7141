"""What about leadership and lag needs attention."""

from schemas import subjects
from schemas.documents import ControlEpoch
from schemas.following import AgentLag, AgentsFollowing, ControlRow, RouterRow
from schemas.ids import ControlId, NodeId, RouterId
from services.fleet.following import LATE_SECONDS, late_attention, lead_attention, leader_since
from tests.builders import AT, Script, at


def a_control(
    name: str = "control-1", *, leading: bool = False, seconds: float = 0.0
) -> ControlRow:
    return ControlRow(
        control=ControlId(name), leading=leading, applied=5, behind=2, behind_seconds=seconds
    )


# spec: O1
def test_a_leader_that_nobody_hears_is_told() -> None:
    assert list(lead_attention("control-1", [a_control(leading=True)])) == []
    (line,) = lead_attention("control-1", [a_control("control-2")])
    assert line.startswith("nobody leads: control-1 did last")
    assert list(lead_attention("", [a_control()])) == []  # That is told as `no leader`.
    assert list(lead_attention("control-1", [])) == []  # The past: nobody is heard in it.


# spec: O1
def test_only_who_has_been_behind_for_long_is_told() -> None:
    lag = AgentLag(node=NodeId("n1"), assigned=7, applied=0, behind_seconds=LATE_SECONDS)
    late = RouterRow(
        router=RouterId("r"), applied=1, behind=4, behind_seconds=60.0, heard_seconds_ago=0.0
    )
    told = late_attention(
        [a_control(seconds=LATE_SECONDS - 1)], [late], AgentsFollowing(worst=(lag,))
    )
    assert list(told) == [
        "router r is 4 sequences behind, for 60 s",
        "node n1 has not applied its assignment 7 for 10 s",
    ]


# spec: O1
def test_the_leader_has_led_since_its_first_claim() -> None:
    script = Script()
    assert leader_since(script.state) == ""
    epoch = ControlEpoch(holder=ControlId("c"), incarnation="1")
    script.put(subjects.CONTROL_EPOCH, epoch)
    assert leader_since(script.state) == AT  # Written by a version that did not say.
    script.put(
        subjects.CONTROL_EPOCH, ControlEpoch(holder=ControlId("c"), incarnation="1", since=at(-9))
    )
    assert leader_since(script.state) == at(-9)
