"""A document stands where its own names put it, written by who speaks there, for every reader."""

from typing import NamedTuple

import pytest

from schemas import codec, subjects
from schemas.documents import (
    Assignment,
    CatalogRevision,
    ControlBrake,
    ControlEpoch,
    Document,
    EndpointShard,
    Gone,
    PlacementVerdict,
    RouterReport,
    ShardStatus,
)
from schemas.ids import ControlId, ModelName, NodeId, RouterId
from services.control.commanding.mending import bad_documents
from services.fleet.families import FAMILIES, Family, family_of, writer_of
from services.fleet.reading import Read, Unreadable, read
from services.fleet.state import FleetState
from services.journal.checks import Checker
from services.log.stored import Stored
from tests.builders import (
    AT,
    Script,
    a_genesis,
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


class Row(NamedTuple):
    """A good document of a family, and where it must not stand."""

    good: str
    document: Document
    foreign: str = ""
    """Of the same family and of other names; empty: its subjects hold none."""
    reason: str = ""


NODE, TINY = NodeId("node-1"), ModelName("tiny")
A_ROUTER = RouterId("r1")
ROWS = {
    "genesis": Row(subjects.GENESIS, a_genesis()),
    "catalog": Row(subjects.CATALOG, a_pointer()),
    "revisions": Row(
        subjects.catalog_revision(201),
        CatalogRevision(revision=201, hash="x", source=codec.raw({})),
        subjects.catalog_revision(202),
        "it is of 1, not of 2",
    ),
    "infos": Row(
        subjects.node_info(NODE), a_node(), subjects.node_info(EVIL), "it is of node-1, not of evil"
    ),
    "shards": Row(
        subjects.node_shard(NODE, 0),
        a_shard(),
        subjects.node_shard(EVIL, 0),
        "it is of node-1.0, not of evil.0",
    ),
    "verdicts": Row(
        subjects.node_verdict(NODE),
        a_verdict(),
        subjects.node_verdict(EVIL),
        "it is of node-1, not of evil",
    ),
    "replicas": Row(
        subjects.replica(TINY, 0),
        a_replica(),
        subjects.replica(TINY, 1),
        "it is of tiny.0, not of tiny.1",
    ),
    "assignments": Row(
        subjects.assignment(NODE),
        Assignment(node=NODE, shards=()),
        subjects.assignment(EVIL),
        "it is of node-1, not of evil",
    ),
    "endpoints": Row(
        subjects.endpoints(TINY, 0),
        EndpointShard(model=TINY, shard=0, shards=1, endpoints=()),
        subjects.endpoints(TINY, 1),
        "it is of tiny.00, not of tiny.01",
    ),
    "placements": Row(
        subjects.placement(TINY),
        PlacementVerdict(model=TINY, verdict="placed", wanted=1, placed=1, rules=1, seen=1),
        subjects.placement(ModelName("other")),
        "it is of tiny, not of other",
    ),
    "epoch": Row(subjects.CONTROL_EPOCH, ControlEpoch(holder=ControlId("c1"), incarnation="i1")),
    "routers": Row(
        subjects.router_report(A_ROUTER, 0),
        RouterReport(router=A_ROUTER, incarnation="i1", since=AT, chunk=0, chunks=1),
        subjects.router_report(RouterId("r2"), 0),
        "it is of r1.00, not of r2.00",
    ),
    "brake": Row(subjects.CONTROL_BRAKE, ControlBrake(engaged=True, since=AT, silent=3, nodes=4)),
}
"""By table: a family without a row here fails."""


def refusals(subject: str, payload: bytes) -> list[str]:
    """Why the fold, what is listed of it, and `journal verify` do not take it; empty: each does."""
    state = FleetState()
    state.apply(50, subject, payload)
    listed = [row.reason for row in bad_documents(state).items if row.subject == subject]
    folded = [each.reason for each in state.unreadable.values()]
    assert listed == folded
    checker = Checker(50)
    found = [each.reason for each in checker.check(Stored(50, subject, payload))]
    assert found == [f"{subject}: {reason}" for reason in folded]
    return folded


# spec: L5 O5
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.table)
def test_of_every_family_a_document_is_taken_where_it_belongs_from_who_speaks_there(
    family: Family,
) -> None:
    row = ROWS[family.table]
    found = family_of(row.good)
    assert found is not None
    assert found[0] is family
    own = {"control": "control/test", "agent": "agent/node-1", "router": "router/r1"}
    assert refusals(row.good, an_event(row.document, src=own[family.writer])) == []
    for stranger in {"agent/evil", "router/evil", "control", "nobody"}:
        (reason,) = refusals(row.good, an_event(row.document, src=stranger))
        assert reason == f"written by {stranger}, and is {writer_of(found)}'s"
    assert bool(row.foreign) is ("*" in family.pattern)
    if row.foreign:
        assert refusals(row.foreign, an_event(row.document)) == [row.reason]


REPLICA = subjects.replica(ModelName("tiny"), 0)
NODE_1 = NodeId("node-1")
IMPOSSIBLE: list[tuple[str, Document, dict[str, object]]] = [
    (REPLICA, a_replica(), {"shards": []}),
    (REPLICA, a_replica(goal="drain"), {"deadline": "garbage"}),
    (REPLICA, a_replica(), {"since": ""}),
    (REPLICA, a_replica(), {"attempt": -5}),
    (REPLICA, a_replica(), {"generation": -1}),
    (subjects.node_info(NODE_1), a_node(), {"ports": [-1, 70000]}),
    (subjects.node_info(NODE_1), a_node(), {"cores": -4.0}),
    (subjects.node_info(NODE_1), a_node(), {"memory_bytes": -1}),
    (subjects.node_shard(NODE_1, 0), a_shard(), {"attempt": -1}),
    (subjects.node_shard(NODE_1, 0), a_shard(), {"port": 65536}),
    (subjects.node_verdict(NODE_1), a_verdict(), {"since": "long ago"}),
    (subjects.node_verdict(NODE_1), a_verdict(), {"silent_since": "2026-13"}),
    (
        subjects.router_report(RouterId("r"), 0),
        RouterReport(router=RouterId("r"), incarnation="i", since=AT, chunk=0, chunks=1),
        {"use": [{"model": "tiny", "last_used": {"tiny-0-1": "garbage"}}]},
    ),
    (
        subjects.router_report(RouterId("r"), 0),
        RouterReport(router=RouterId("r"), incarnation="i", since=AT, chunk=0, chunks=1),
        {"since": "garbage"},
    ),
    (
        subjects.CONTROL_BRAKE,
        ControlBrake(engaged=True, since=AT, silent=3, nodes=4),
        {"calm_since": "never"},
    ),
]


# spec: L5
@pytest.mark.parametrize(("subject", "document", "wrong"), IMPOSSIBLE)
def test_what_can_not_be_is_no_document(
    subject: str, document: Document, wrong: dict[str, object]
) -> None:
    """What the rules count with is looked at when it is read: else it would end whoever counts."""
    found = family_of(subject)
    assert found is not None
    source = "control/test" if found[0].writer == "control" else writer_of(found)
    good = an_event(document, src=source)
    script = Script()
    script.state.apply(10, subject, good)
    assert script.state.unreadable == {}
    data = codec.decode(codec.raw(document), dict[str, object])
    script.state.apply(11, subject, an_event(data | wrong, src=source))
    assert set(script.state.unreadable) == {subject}
    held = script.state.held(subject)
    assert held is not None
    assert held.sequence == 10
