"""Every label that the product writes is told in words, and in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from schemas import subjects
from schemas.documents import (
    AssignedShard,
    Assignment,
    CatalogRevision,
    CommandRecord,
    ControlBrake,
    ControlEpoch,
    Document,
    Endpoint,
    EndpointShard,
    Gone,
    LastError,
    LaunchSpec,
    ModelUse,
    NodeRefusal,
    PlacementVerdict,
    Progress,
    RouterReport,
)
from schemas.ids import ControlId, EngineName, EventId, LogId, ModelName, NodeId, RouterId
from services.fleet.telling.happened import happened
from services.fleet.telling.summaries import LABELS, summary
from tests.builders import (
    AT,
    a_genesis,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
    replica_name,
)

ROOT = Path(__file__).parents[3]
TINY, NODE = ModelName("tiny"), NodeId("node-1")
LAUNCH = LaunchSpec(
    engine=EngineName("llamacpp"),
    kind="llamacpp",
    source="/models/tiny.gguf",
    served_name=TINY,
    host="127.0.0.1",
    port=17000,
)
ORDERED = AssignedShard(
    replica=replica_name("tiny"), model=TINY, attempt=1, goal="run", launch=LAUNCH
)
DRAINED = AssignedShard(
    replica=replica_name("tiny", 1), model=TINY, attempt=1, goal="drain", launch=LAUNCH
)
ENDPOINT = Endpoint(
    replica=replica_name("tiny"), incarnation="1.0", address="a:1", node=NODE, kind="llamacpp"
)
RECORD = CommandRecord(
    verb="apply",
    actor="ann",
    source="127.0.0.1",
    reason="fewer",
    target="catalog",
    outcome="accepted",
    detail="revision 3",
)
BRAKE = ControlBrake(engaged=True, since=AT, silent=3, nodes=4)
KILLED = LastError(failure="killed", message="out of memory")


def a_verdict_of(word: str) -> PlacementVerdict:
    refusals = (NodeRefusal(reason="cores", nodes=2, detail="wants 4, 1 free"),)
    return PlacementVerdict(
        model=TINY,
        verdict="placed" if word == "placed" else "unplaceable",
        wanted=3,
        placed=3 if word == "placed" else 1,
        refusals=() if word == "placed" else refusals,
        rules=1,
        seen=7,
    )


def a_report(chunks: int = 1, **unreachable: str) -> RouterReport:
    return RouterReport(
        router=RouterId("router-1"),
        incarnation="a",
        since=AT,
        chunk=0,
        chunks=chunks,
        use=(ModelUse(model=TINY, last_used={replica_name("tiny"): AT}),),
        unreachable={replica_name(name): why for name, why in unreachable.items()},
    )


TOLD: dict[str, tuple[str, Document, str]] = {
    "assignment.changed": (
        subjects.assignment(NODE),
        Assignment(node=NODE, shards=(ORDERED, DRAINED)),
        "node node-1 is to run tiny-0-1, tiny-1-1 (to drain)",
    ),
    "brake.engaged": (
        "flotilla.log.s.control.brake",
        BRAKE,
        "the brake is on: 3 of 4 nodes fell silent at once; none is held for lost, "
        "nothing is rebuilt",
    ),
    "brake.eased": (
        "flotilla.log.s.control.brake",
        BRAKE,
        "most nodes are heard again: the brake ends if that lasts",
    ),
    "brake.held": (
        "flotilla.log.s.control.brake",
        BRAKE,
        "nodes are silent again: the brake holds",
    ),
    "brake.released": (
        "flotilla.log.s.control.brake",
        ControlBrake(engaged=False, since=AT, silent=3, nodes=4, released_by=EventId("c")),
        f"the brake is off, by command; it was on since {AT}",
    ),
    "catalog.recovered": (
        subjects.CATALOG,
        a_pointer(3),
        "catalog r3 became current, by tests",
    ),
    "catalog.stored": (
        subjects.catalog_revision(3),
        CatalogRevision(revision=3, hash="h", source=Raw(b"{}")),
        "catalog r3 was stored",
    ),
    "catalog.swapped": (
        subjects.CATALOG,
        a_pointer(3),
        "catalog r3 became current, by tests",
    ),
    "command.accepted": (
        subjects.command("apply"),
        RECORD,
        "ann asked for apply of catalog (fewer): accepted, revision 3",
    ),
    "command.refused": (
        subjects.command("apply"),
        CommandRecord(
            verb="apply", actor="ann", source="", outcome="refused", detail="bad_catalog: 2 faults"
        ),
        "ann asked for apply: refused, bad_catalog: 2 faults",
    ),
    "control.claimed": (
        subjects.CONTROL_EPOCH,
        ControlEpoch(holder=ControlId("control-2"), incarnation="a"),
        "control control-2 took the lead",
    ),
    "document.restored": (
        subjects.replica(TINY, 0),
        a_replica(),
        "put right by command: tiny-0-1 is to run on node-1, for catalog r1",
    ),
    "document.retired": (
        subjects.node_info(NODE),
        Gone(id="node-1"),
        "put right by command: node node-1 is gone",
    ),
    "endpoints.gone": (
        subjects.endpoints(TINY, 1),
        Gone(id="tiny-01"),
        "routers are told of no endpoint of tiny any more",
    ),
    "endpoints.published": (
        subjects.endpoints(TINY, 0),
        EndpointShard(model=TINY, shard=0, shards=2, endpoints=(ENDPOINT,)),
        "routers are told of tiny (part 1 of 2): tiny-0-1",
    ),
    "log.begun": (
        subjects.GENESIS,
        a_genesis(parent=LogId("fedcba9876543210")),
        "log 01234567 began, which goes on from log fedcba98",
    ),
    "log.recovered": (
        subjects.GENESIS,
        a_genesis(parent=LogId("fedcba9876543210")),
        "log 01234567 began, which goes on from log fedcba98",
    ),
    "node.alive": (
        subjects.node_verdict(NODE),
        a_verdict(condition="alive"),
        "node node-1 is alive: heard again",
    ),
    "node.described": (
        subjects.node_info(NODE),
        a_node(),
        "node node-1 described itself: agent 0.1.0, 8 cores",
    ),
    "node.lost": (
        subjects.node_verdict(NODE),
        a_verdict(),
        "node node-1 is lost, silent for more than 60 s",
    ),
    "node.unreachable": (
        subjects.node_verdict(NODE),
        a_verdict(condition="unreachable"),
        "node node-1 is unreachable: not heard",
    ),
    "placement.gone": (
        subjects.placement(TINY),
        Gone(id="tiny"),
        "tiny is placed no more: it left the catalog",
    ),
    "placement.placed": (subjects.placement(TINY), a_verdict_of("placed"), "tiny: 3 of 3 placed"),
    "placement.unplaceable": (
        subjects.placement(TINY),
        a_verdict_of("unplaceable"),
        "tiny: 1 of 3 placed, no room for more: 2 x cores (wants 4, 1 free)",
    ),
    "replica.adopted": (
        subjects.replica(TINY, 0),
        replace(a_replica(), reason="adopted: it ran"),
        "tiny-0-1 is to run on node-1, for catalog r1: adopted: it ran",
    ),
    "replica.draining": (
        subjects.replica(TINY, 0),
        a_replica(goal="drain", deadline=AT),
        f"tiny-0-1 on node-1 is to drain, until {AT} at the latest",
    ),
    "replica.gone": (subjects.replica(TINY, 0), Gone(id="tiny-0-1"), "tiny-0-1 is gone"),
    "replica.moved_port": (
        subjects.replica(TINY, 0),
        a_replica(port=17001),
        "tiny-0-1 on node-1 gets port 17001 (attempt 1)",
    ),
    "replica.placed": (
        subjects.replica(TINY, 0),
        a_replica(),
        "tiny-0-1 placed on node-1, for catalog r1",
    ),
    "replica.stopping": (
        subjects.replica(TINY, 0),
        a_replica(goal="stop"),
        "tiny-0-1 on node-1 is to stop",
    ),
    "router.reported": (
        subjects.router_report(RouterId("router-1"), 0),
        a_report(tiny="refused"),
        "router router-1 reported the last use of 1 replica; cannot reach tiny-0-1: refused",
    ),
    "router.shortened": (
        subjects.router_report(RouterId("router-1"), 0),
        a_report(chunks=2),
        "router router-1 reported less: 2 parts",
    ),
    "shard.failed": (
        subjects.node_shard(NODE, 0),
        a_shard(phase="failed", run=2, error=KILLED),
        "tiny-0-1 on node-1: failed (restart 2): killed: out of memory; no other try by itself",
    ),
    "shard.cleared": (
        subjects.node_shard(NODE, 3),
        Gone(id="slot-3"),
        "slot 3 of a node is cleared: nothing stands behind what was there",
    ),
    "shard.gone": (
        subjects.node_shard(NODE, 0),
        Gone(id="tiny-0-1"),
        "a node has nothing left of tiny-0-1",
    ),
    **{
        f"shard.{phase}": (
            subjects.node_shard(NODE, 0),
            a_shard(phase=phase),
            f"tiny-0-1 on node-1: {phase}",
        )
        for phase in ("loading", "ready", "starting", "stopped", "stopping")
    },
}


@pytest.mark.parametrize("label", sorted(LABELS))
def test_every_label_is_told_in_words(label: str) -> None:
    subject, document, words = TOLD[label]
    assert summary(happened(7, subject, an_event(document, kind=label))) == words


def test_how_far_a_load_is_is_told() -> None:
    shard = replace(a_shard(phase="loading"), progress=Progress(step="weights", percent=62.4))
    payload = an_event(shard, kind="shard.loading")
    told = summary(happened(7, subjects.node_shard(NODE, 0), payload))
    assert told == "tiny-0-1 on node-1: loading, weights 62%"


def test_a_long_list_is_cut_to_a_number() -> None:
    orders = tuple(ORDERED for _ in range(9))
    payload = an_event(Assignment(node=NODE, shards=orders))
    told = summary(happened(7, subjects.assignment(NODE), payload))
    assert told.endswith(" and 3 more")


@pytest.mark.parametrize(
    ("subject", "payload", "words"),
    [
        (
            "flotilla.log.s.catalog",
            b"no JSON",
            "cannot be read: no event of ours: JSON is malformed: invalid character (byte 4)",
        ),
        (
            "flotilla.log.s.moon.phase",
            an_event({"full": True}, kind="moon.rose"),
            "moon.rose v1 (not known to this version)",
        ),
        (
            subjects.CATALOG,
            an_event(a_pointer(), kind="catalog.swapped", version=99),
            "catalog.swapped v99 (not known to this version)",
        ),
        (
            subjects.CATALOG,
            an_event({"revision": "no number"}, kind="catalog.swapped"),
            "cannot be read: Expected `int`, got `str` - at `$.revision`; "
            "it says that it is catalog.swapped by control/test",
        ),
    ],
)
def test_what_cannot_be_read_is_told_by_its_label(subject: str, payload: bytes, words: str) -> None:
    assert summary(happened(7, subject, payload)) == words


def test_every_label_that_the_code_writes_is_known() -> None:
    written = set(_labels())
    assert {"replica.placed", "shard.gone", "catalog.swapped", "node.described"} <= written
    assert written - LABELS == set()


WRITERS = {"put", "seal", "Draft", "Brake", "_write", "_put"}
"""What is given a label that goes into the log."""


def _labels() -> Iterator[str]:
    """Dotted literals that are handed to a writer, and those they are chosen from."""
    for file in sorted((ROOT / "services").rglob("*.py")):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in WRITERS:
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield from (text for each in given if (text := _label(each)))
            if isinstance(node, ast.Assign) and _name(node.targets[0]) in {"label", "kind"}:
                yield from (text for each in ast.walk(node.value) if (text := _label(each)))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _label(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(text, str) or not text.replace(".", "").replace("_", "").isalpha():
        return ""
    return text if text.islower() and text.count(".") == 1 else ""
