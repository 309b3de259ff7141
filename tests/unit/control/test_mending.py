import pytest

from schemas import subjects
from schemas.documents import Document, Gone
from schemas.frames import Accepted, Refusal
from schemas.ids import EventId, ModelName, NodeId
from schemas.recovery import Mend, Putting
from services.control.commanding.commands import Actor
from services.control.commanding.mending import bad_documents, plan_mend
from services.control.commanding.moment import Moment, Planned
from services.control.deciding.current import CurrentCatalog
from services.fleet.state import FleetState
from tests.builders import Script, a_node, a_pointer, a_replica, an_event

ACTOR = Actor("tests", "127.0.0.1", EventId("command-1"))
REPLICA = subjects.replica(ModelName("tiny"), 0)
SHARD = subjects.node_shard(NodeId("node-1"), 0)
ASSIGNMENT = subjects.assignment(NodeId("node-1"))
STRANGE = "flotilla.log.s.strange.thing"


def a_state(*subjects_: str) -> FleetState:
    """A fleet on whose subjects garbage was published."""
    script = Script(a_node(), a_pointer(1), a_replica())
    for sequence, subject in enumerate(subjects_, 90):
        script.state.apply(sequence, subject, b"garbage")
    return script.state


def planned(state: FleetState, subject: str, to: Putting = "last-good") -> Planned:
    moment = Moment(state, CurrentCatalog().read(state))
    return plan_mend(moment, Mend(subject=subject, to=to), ACTOR)


def mended(state: FleetState, subject: str, to: Putting = "last-good") -> Document:
    plan = planned(state, subject, to)
    assert isinstance(plan.answer(5), Accepted)
    document, record = plan.drafts
    assert (document.subject, record.subject) == (subject, subjects.command("mend"))
    return document.document


# spec: L5
def test_the_last_good_value_is_written_anew() -> None:
    assert mended(a_state(REPLICA), REPLICA) == a_replica()


def test_a_replica_is_retired_under_its_own_id() -> None:
    assert mended(a_state(REPLICA), REPLICA, "gone") == Gone(id="tiny-0-1")
    other = subjects.replica(ModelName("tiny"), 7)
    assert mended(a_state(other), other, "gone") == Gone(id="tiny-7-0")


def test_garbage_on_a_subject_of_nobody_is_covered_by_what_every_reader_may_skip() -> None:
    state = a_state(STRANGE)
    plan = planned(state, STRANGE, "gone")
    assert plan.drafts[0].optional
    state.apply(99, STRANGE, an_event(plan.drafts[0].document, optional=True))
    assert (state.unreadable, state.halted()) == ({}, ())


def test_what_halts_this_version_can_be_retired() -> None:
    state = a_state()
    state.apply(90, STRANGE, an_event({}, version=9))
    assert state.halted() != ()
    assert isinstance(planned(state, STRANGE, "gone").answer(5), Accepted)


@pytest.mark.parametrize(
    ("subject", "to", "code"),
    [
        (REPLICA, "last-good", "not_bad"),
        (subjects.GENESIS, "last-good", "not_mended"),
        (SHARD, "last-good", "not_ours"),
        (subjects.CATALOG, "gone", "not_retired"),
        (ASSIGNMENT, "gone", "not_retired"),
        (ASSIGNMENT, "last-good", "no_last_good"),
        (STRANGE, "last-good", "no_last_good"),
    ],
)
def test_every_refusal_is_recorded_with_its_reason(subject: str, to: Putting, code: str) -> None:
    state = a_state() if code == "not_bad" else a_state(subject)
    plan = planned(state, subject, to)
    answer = plan.answer(5)
    assert isinstance(answer, Refusal)
    assert answer.code == code
    assert [draft.subject for draft in plan.drafts] == [subjects.command("mend")]


def test_the_list_names_writer_last_good_value_and_remedy() -> None:
    rows = {row.subject: row for row in bad_documents(a_state(REPLICA, SHARD, STRANGE)).items}
    assert (rows[REPLICA].writer, rows[REPLICA].last_good, rows[REPLICA].command) == (
        "control",
        4,
        f"flotilla journal mend {REPLICA}",
    )
    assert (rows[SHARD].writer, rows[SHARD].command) == ("agent node-1", "")
    assert rows[STRANGE].command == f"flotilla journal mend {STRANGE} --gone"
