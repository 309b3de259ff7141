"""`brake off`, planned and carried out on a log in memory, and what is shown of the brake."""

from msgspec.structs import replace

from schemas import subjects
from schemas.brake import ReleaseBrake
from schemas.documents import CommandRecord, ControlBrake
from schemas.frames import Accepted, Refusal
from schemas.ids import EventId
from services.control.commanding.brake_command import plan_release
from services.control.commanding.commands import Actor
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.current import CurrentCatalog
from services.fleet.braking import brake_attention, brake_row, brake_view
from services.fleet.views import Live, status
from tests.builders import AT, NOW, Script, a_node, a_replica, a_verdict

ON = ControlBrake(engaged=True, since=AT, silent=6, nodes=10, calm_since=AT)
ANN = Actor("ann", "127.0.0.1", EventId("command-1"))


def a_log(brake: ControlBrake | None = ON) -> Script:
    """Of two nodes with a replica each; one is unreachable, one that is lost has another."""
    nodes = (a_node("node-1"), a_node("node-2"), a_node("node-3"))
    script = Script(*nodes, a_verdict("node-2", "unreachable"), a_verdict("node-3"))
    for slot, node in enumerate(("node-1", "node-2", "node-3")):
        script.add(a_replica(slot=slot, node=node))
    if brake is not None:
        script.put(subjects.CONTROL_BRAKE, brake, kind="brake.engaged")
    return script


def planned(script: Script, reason: str = "maintenance") -> Planned:
    moment = Moment(script.state, CurrentCatalog().read(script.state))
    return plan_release(moment, ReleaseBrake(state="off", reason=reason), ANN)


def record(plan: Planned) -> CommandRecord:
    document = plan.drafts[-1].document
    assert plan.drafts[-1].subject == "flotilla.log.e.command.brake"
    assert isinstance(document, CommandRecord)
    return document


# spec: R4 L1
def test_its_end_and_the_record_are_one_batch() -> None:
    script = a_log()
    plan = planned(script)
    released, _ = plan.drafts
    assert (released.subject, released.type) == (subjects.CONTROL_BRAKE, "brake.released")
    assert released.document == replace(ON, engaged=False, calm_since=None, released_by=ANN.command)
    assert released.cause == script.state.brake[()].event
    told = record(plan)
    assert (told.outcome, told.actor, told.reason, told.target) == (
        "accepted",
        "ann",
        "maintenance",
        "brake",
    )
    answer = plan.answer(7)
    assert answer == Accepted(as_of_seq=7, command=ANN.command)


# spec: R4 L1
def test_what_is_off_is_not_ended_and_that_is_recorded() -> None:
    for brake in (None, replace(ON, engaged=False)):
        plan = planned(a_log(brake))
        assert [draft.type for draft in plan.drafts] == ["command.refused"]
        assert record(plan).detail == "brake_is_off: the brake is not on"
        answer = plan.answer(7)
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.next) == ("brake_is_off", "flotilla brake")


def test_a_control_that_decides_nothing_ends_nothing() -> None:
    script = a_log()
    script.put("flotilla.log.s.future.thing", {"x": 1})
    plan = planned(script)
    assert [draft.type for draft in plan.drafts] == ["command.refused"]


# spec: R4 O1
def test_status_says_count_and_since_and_what_is_held_back() -> None:
    script = a_log()
    page = status(script.state, CurrentCatalog().read(script.state).catalog, Live(now=NOW))
    assert page.brake == brake_row(script.state)
    assert page.attention[0] == (
        f"brake on since {AT}: 6 of 10 nodes fell silent at once, 1 still are; "
        "no node is lost and nothing rebuilt until it ends (2 replicas held)"
    )


# spec: R4
def test_what_is_off_holds_nothing_and_says_how_it_ended() -> None:
    assert list(brake_attention(brake_row(a_log(None).state))) == []
    assert not brake_view(a_log(None).state).engaged
    script = a_log()
    for draft in planned(script).drafts:
        script.put(draft.subject, draft.document, kind=draft.type)
    view = brake_view(script.state)
    assert (view.engaged, view.brake, view.released_at, view.released_by) == (
        False,
        None,
        AT,
        "command-1",
    )
