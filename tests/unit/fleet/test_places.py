"""A document stands where its own names put it, written by who speaks there, for every reader."""

import pytest

from schemas import subjects
from schemas.documents import Document, Gone, ShardStatus
from schemas.ids import ModelName, NodeId
from services.fleet.reading import Read, Unreadable, read
from tests.builders import (
    Script,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
    subject_of,
)

EVIL = NodeId("evil")
STRANGE = "flotilla.log.s.strange.thing"


# spec: L5
@pytest.mark.parametrize(
    ("subject", "document", "reason"),
    [
        (subjects.node_info(EVIL), a_node("vm"), "it is of vm, not of evil"),
        (subjects.node_shard(EVIL, 0), a_shard(), "it is of node-1.0, not of evil.0"),
        (
            subjects.node_shard(NodeId("node-1"), 0)[:-1] + "zzz-0",
            a_shard(),
            "it is of node-1.SLOT, not of node-1.zzz-0",
        ),
        (subjects.node_verdict(EVIL), a_verdict(), "it is of node-1, not of evil"),
        (
            subjects.replica(ModelName("tiny"), 1),
            a_replica(),
            "it is of tiny.0, not of tiny.1",
        ),
        (
            subjects.replica(ModelName("tiny"), 0),
            Gone(id="tiny-1-7"),
            "it retires tiny-1-7, which is not its subject's",
        ),
    ],
)
def test_nothing_describes_another(subject: str, document: Document, reason: str) -> None:
    script = Script(a_node("vm"))
    script.state.apply(50, subject, an_event(document))
    assert script.state.unreadable[subject].reason == reason
    assert [held.document.node for held in script.state.infos.values()] == ["vm"]
    found = read(subject, an_event(document), type(document))
    assert found == Unreadable(reason)


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("agent/node-1", True),
        ("control/c1", True),
        ("agent/evil", False),
        ("agents/node-1", False),
        ("router/node-1", False),
        ("node-1", False),
    ],
)
def test_an_agent_speaks_of_its_own_node_alone(source: str, *, reads: bool) -> None:
    shard, script = a_shard(), Script()
    subject, payload = subject_of(shard), an_event(shard, src=source)
    script.state.apply(50, subject, payload)
    assert (subject not in script.state.unreadable) is reads
    assert isinstance(read(subject, payload, ShardStatus), Read) is reads


def test_what_control_retires_of_no_known_family_is_gone() -> None:
    script = Script(a_pointer())
    script.state.apply(50, STRANGE, b"garbage")
    script.state.apply(51, STRANGE, an_event(Gone(id="x"), src="agent/node-1", optional=True))
    assert STRANGE in script.state.unknown
    script.state.apply(52, STRANGE, an_event(Gone(id="x"), optional=True))
    assert (script.state.unknown, script.state.unreadable) == ({}, {})
    assert script.state.held(STRANGE) is not None
