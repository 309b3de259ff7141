"""What must hold of a log: each kind of fault is found, and a log of ours has none."""

import pytest

from schemas import subjects
from schemas.documents import Genesis, Gone
from services.journal.checks import Checker, Finding, compare
from services.log.stored import Stored
from tests.builders import a_node, a_pointer, a_verdict, an_event
from tests.support.past import LOG_ID, NEXT_ID, Past, begun

NODE = a_node("node-1")
INFO = subjects.node_info(NODE.node)
VERDICT = subjects.node_verdict(NODE.node)
A_REPORT = "flotilla.log.s.router.r1.00"


def findings(past: Past, first: int = 1) -> list[Finding]:
    checker = Checker(first)
    stored = [each for each in past.messages if each.sequence >= first]
    return [found for each in stored for found in checker.check(each)]


def kinds(past: Past, first: int = 1) -> list[tuple[int, str]]:
    return [(found.sequence, found.kind) for found in findings(past, first)]


def test_a_log_of_ours_has_no_fault() -> None:  # spec: O5
    past = begun().pass_by(100)
    past.claim()
    past.pass_by(50)
    assert findings(past) == []
    assert findings(past, 60) == []


def test_a_gap_is_found_at_its_first_sequence() -> None:
    past = begun().pass_by(20)
    del past.messages[9:12]
    assert findings(past) == [Finding(10, "gap", "LOG does not hold 10 to 12")]
    checker = Checker(1)
    for each in past.messages[:-1]:
        checker.check(each)
    assert checker.end(22) == [Finding(22, "gap", "LOG does not hold 22")]


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (VERDICT, b"\x00garbage"),
        (VERDICT, an_event({"node": 7}, log=LOG_ID)),
        (subjects.command("cordon"), b"{}"),
    ],
)
def test_a_payload_that_cannot_be_read_is_found(subject: str, payload: bytes) -> None:
    past = begun()
    at = past.put(subject, payload)
    assert kinds(past) == [(at, "unreadable")]


def test_what_only_a_newer_version_knows_is_found_unless_it_may_be_skipped() -> None:
    past = begun()
    newer = an_event({}, log=LOG_ID, version=99, src="agent/node-1")
    at = past.put(INFO, newer)
    past.put(INFO, an_event({}, log=LOG_ID, version=99, src="agent/node-1", optional=True))
    other = past.put(
        "flotilla.log.s.lease.a", an_event({}, log=LOG_ID, version=1, src="agent/node-1")
    )
    assert kinds(past) == [(at, "unknown"), (other, "unknown")]


@pytest.mark.parametrize(
    ("subject", "document", "src"),
    [
        (INFO, NODE, "agent/node-2"),
        (INFO, NODE, "router/node-1"),
        (INFO, NODE, "control/c1"),
        (VERDICT, a_verdict("node-1"), "agent/node-1"),
        (A_REPORT, Gone(id="r1"), "router/r2"),
        (subjects.command("cordon"), {}, "agent/node-1"),
        ("flotilla.log.e.usage.r1", {}, "router/r2"),
    ],
)
def test_a_writer_that_may_not_write_there_is_found(
    subject: str, document: object, src: str
) -> None:
    past = begun()
    at = past.say(subject, document, src)
    assert kinds(past) == [(at, "writer")]


def test_names_that_are_no_tokens_are_compared_as_tokens() -> None:
    past = begun()
    named = a_node("GPU box.7")
    past.say(subjects.node_info(named.node), named, "agent/GPU box.7")
    assert findings(past) == []


def test_the_leader_retires_others_documents_and_carries_them_into_a_new_log() -> None:
    past = begun()
    past.say(INFO, Gone(id="node-1"))
    past.begin(NEXT_ID, parent=LOG_ID)
    past.claim()
    past.say(INFO, NODE)
    past.say(subjects.CATALOG, a_pointer())
    at = past.say(INFO, NODE)
    assert kinds(past) == [(at, "writer")]


def test_an_event_of_another_log_is_found() -> None:
    past = begun()
    at = past.say(VERDICT, a_verdict(), log_id=NEXT_ID)
    foreign = past.begin(NEXT_ID)
    past.log_id = LOG_ID
    past.say(VERDICT, a_verdict())
    assert kinds(past) == [(at, "log"), (foreign, "log")]


def test_who_had_not_moved_over_yet_when_a_log_was_gone_on_from_is_no_fault_of_it() -> None:
    past = begun()
    genesis = Genesis(log_id=NEXT_ID, format=1, parent=LOG_ID)
    past.put(subjects.GENESIS, an_event(genesis, log=NEXT_ID))
    past.put(INFO, an_event(NODE, log=LOG_ID, src=f"agent/{NODE.node}"))
    at = past.put(VERDICT, an_event(a_verdict("node-1"), log=LOG_ID))  # Control had.
    assert [found for found in kinds(past) if found[1] == "log"] == [(at, "log")]


def test_a_log_must_begin_with_its_genesis() -> None:
    past = Past()
    past.fence = 0
    past.say(VERDICT, a_verdict())
    assert kinds(past) == [(1, "log")]


def test_a_decision_of_a_superseded_epoch_is_found() -> None:  # spec: L1
    past = begun()
    old = past.fence
    past.claim()
    past.say(VERDICT, a_verdict())
    at = past.say(VERDICT, a_verdict(), epoch=old)
    never = past.say(VERDICT, a_verdict(), epoch=past.fence + 100)
    assert kinds(past) == [(at, "epoch"), (never, "epoch")]
    assert kinds(past, 4) == [(at, "epoch")]  # Which were claimed before is not known there.


def stored(sequence: int, subject: str, payload: bytes = b"{}") -> Stored:
    return Stored(sequence, subject, payload)


def test_state_holds_what_log_held_last() -> None:
    past = begun().pass_by(30)
    checker = Checker(1)
    last: dict[str, Stored] = {}
    for each in past.messages:
        checker.check(each)
        if each.subject.startswith(subjects.STATE_ROOT):
            last[each.subject] = each
    state = list(last.values())
    assert compare(checker.last, state, 1, 32) == []
    gone_on = [each for each in state if each.subject != VERDICT] + [stored(40, VERDICT)]
    assert compare(checker.last, gone_on, 1, 32) == []
    lacking = [each for each in state if each.subject != VERDICT]
    changed = [*lacking, stored(last[VERDICT].sequence, VERDICT, b"{1}")]
    older = [*lacking, stored(3, VERDICT)]
    more = [*state, stored(12, "flotilla.log.s.node.other.info")]
    for bad in (lacking, changed, older, more):
        assert [found.kind for found in compare(checker.last, bad, 1, 32)] == ["state"]
    aged = [*state, stored(2, "flotilla.log.s.node.other.info")]
    assert compare(checker.last, aged, 5, 32) == []
