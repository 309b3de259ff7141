"""Which events concern what, on the log of an imagined fleet."""

import pytest
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import Card, CommandRecord, Gone, NodeInfo
from schemas.history import EventRow, TargetKind
from schemas.ids import (
    EventId,
    GpuUuid,
    ModelName,
    NodeId,
    ReplicaParts,
    Token,
    parse_replica,
    replica_id,
    token,
)
from services.fleet.telling.concerns import Target, concerns, patterns
from services.fleet.telling.event_rows import event_row
from services.fleet.telling.happened import Happened, happened
from tests.builders import (
    Script,
    a_model,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
)
from tests.support.deciding import Fleet

TARGETS = [
    Target("node", "node-1"),
    Target("replica", "tiny-0-1"),
    Target("model", "tiny"),
    Target("gpu", "GPU-1"),
]


def log_of(script: Script) -> list[Happened]:
    return [happened(*message) for message in script.log]


def lived() -> list[Happened]:
    """Two models on two nodes; one node is lost, and its replica placed anew."""
    fleet = Fleet(
        a_node("node-1"), a_node("node-2"), models=[a_model("tiny"), a_model("other", source="o")]
    )
    fleet.turn()
    for model in ("tiny", "other"):
        fleet.ready(model)
    fleet.wait(61, "node-1")
    fleet.unanswered = {NodeId("node-1")}
    fleet.turn()
    fleet.swap()
    fleet.turn()
    return log_of(fleet.script)


def told(target: Target) -> set[str]:
    return {
        found.event.type for found in lived() if found.event is not None and concerns(found, target)
    }


def matches(pattern: str, subject: str) -> bool:
    """As NATS does."""
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(words) >= len(wanted) and matches(
            ".".join(wanted[:-1]), ".".join(words[: len(wanted) - 1])
        )
    return len(wanted) == len(words) and all(
        one in ("*", other) for one, other in zip(wanted, words, strict=True)
    )


# spec: O2
def test_what_concerns_a_replica_is_of_it_alone() -> None:
    log = lived()
    replicas = {
        found.event.type for found in log if found.event and found.subject.startswith(REPLICA)
    }
    assert "replica.placed" in replicas
    for found in log:
        if concerns(found, Target("replica", "tiny-0-1")):
            assert "other-0-1" not in found.subject
            assert b"tiny-0-1" in codec.encode(found.event)


REPLICA = subjects.ALL_REPLICAS.removesuffix(">")


# spec: O2
def test_each_target_finds_the_events_of_every_writer() -> None:
    assert {"replica.placed", "assignment.changed", "endpoints.published"} <= told(
        Target("replica", "tiny-0-1")
    )
    assert {"replica.placed", "placement.placed", "endpoints.published"} <= told(
        Target("model", "tiny")
    )
    assert {"node.lost", "assignment.changed"} <= told(Target("node", "node-1"))


# spec: O2
def test_the_subjects_that_are_read_hold_all_that_concerns_and_no_two_overlap() -> None:
    for target in TARGETS:
        read = patterns(target)
        for found in lived():
            held = [pattern for pattern in read if matches(pattern, found.subject)]
            assert len(held) <= 1, (target, found.subject)
            assert held or not concerns(found, target), (target, found.subject)


def test_what_a_command_caused_concerns_it() -> None:
    def event(id_: str, cause: str | None = None, corr: str | None = None) -> Happened:
        payload = an_event(
            a_pointer(),
            id_=id_,
            cause=None if cause is None else EventId(cause),
            corr=None if corr is None else EventId(corr),
        )
        return happened(1, subjects.CATALOG, payload)

    command = Target("command", "c-1")
    assert concerns(event("c-1"), command)
    assert concerns(event("e", corr="c-1"), command)
    assert concerns(event("e", cause="c-1"), command)
    assert not concerns(event("e", corr="c-2"), command)


def test_a_command_is_found_by_the_mark_of_who_asked() -> None:
    record = CommandRecord(verb="apply", actor="a", source="", outcome="refused", asked="0a1b")
    script = Script()
    script.put(subjects.command("apply"), record)
    assert concerns(log_of(script)[-1], Target("command", "0a1b"))
    assert not concerns(log_of(script)[-1], Target("command", ""))


def test_a_card_is_concerned_by_its_node_and_by_whoever_was_given_it() -> None:
    card = GpuUuid("GPU-1")
    info: NodeInfo = replace(
        a_node(), cards=(Card(uuid=card, gpu_class="h100", memory_bytes=1 << 30),)
    )
    replica = a_replica()
    with_card = replace(replica, shards=(replace(replica.shards[0], gpus=(card,)),))
    shard = replace(a_shard(replica), gpus=(card,))
    log = log_of(Script(info, with_card, shard, a_verdict()))
    assert [concerns(found, Target("gpu", card)) for found in log[1:]] == [True, True, True, False]


def test_a_command_about_a_node_concerns_it() -> None:
    record = CommandRecord(
        verb="cordon", actor="a", source="", target="node/node-1", outcome="accepted"
    )
    script = Script()
    script.put(subjects.command("cordon"), record)
    assert concerns(log_of(script)[-1], Target("node", "node-1"))
    assert not concerns(log_of(script)[-1], Target("node", "node-2"))


# spec: L5 O2
def test_what_cannot_be_read_concerns_whoever_it_stands_in_the_place_of() -> None:
    node, model = subjects.node_info(NodeId("node-1")), subjects.placement(ModelName("tiny"))
    replica = "flotilla.log.s.replica.tiny.0"
    newer = an_event({}, kind="node.rose", version=99)
    rubbish = [
        happened(sequence, subject, payload, 7.0)
        for sequence, (subject, payload) in enumerate(
            [(node, b"\x00"), (model, b"\x00"), (replica, b"\x00"), (node, newer)]
        )
    ]

    def of(kind: TargetKind, name: str) -> list[int]:
        return [each.sequence for each in rubbish if concerns(each, Target(kind, name))]

    assert of("node", "node-1") == [0, 3]
    assert of("model", "tiny") == [1, 2]
    assert of("replica", "tiny-0-1") == [2]
    assert of("node", "info") == of("node", "tiny") == of("model", "node-1") == []
    rows = [event_row(each) for each in rubbish]
    assert [row.type for row in rows] == [*["unreadable"] * 3, "node.rose"]
    assert rows[0].at == "1970-01-01T00:00:07.000000Z"
    assert codec.decode(codec.encode(rows), list[EventRow]) == rows


# spec: L5
def test_bytes_that_are_no_text_stay_out_of_an_answer() -> None:
    payload = an_event({"more": "x"}).replace(b'"x"', b'"\xff"')
    row = event_row(happened(1, "flotilla.log.s.moon.1", payload))
    assert (row.type, bytes(row.detail), row.detail_bytes) == ("test.happened", b"null", 12)


def test_a_replicas_id_is_taken_apart() -> None:
    assert parse_replica("llama-70b-3-12") == ReplicaParts(Token("llama-70b"), 3, 12)
    assert parse_replica("tiny") is None
    assert parse_replica("tiny-a-1") is None
    assert parse_replica("Tiny-0-1") is None
    assert parse_replica("tiny-\u0661-1") is None


ODD = ["org/Big.Model_X-1", "x" * 60, "a-x12345678", "Ünï"]


# spec: O2 O5
@pytest.mark.parametrize("model", ODD)
def test_of_a_model_of_any_name_each_replica_is_known_by_its_id(model: str) -> None:
    name = ModelName(model)
    replica = replica_id(name, 2, 7)
    assert parse_replica(replica) == ReplicaParts(token(model), 2, 7)
    fleet = Fleet(a_node("node-1"), models=[a_model(model)])
    fleet.turn()
    fleet.ready(model)
    (placed,) = fleet.replicas(model)
    log = log_of(fleet.script)
    for target in (Target("replica", placed.id), Target("model", model)):
        read = patterns(target)
        of_it = [found for found in log if concerns(found, target)]
        types = {found.event.type for found in of_it if found.event is not None}
        assert {"replica.placed", "endpoints.published"} <= types
        for found in of_it:
            assert any(matches(pattern, found.subject) for pattern in read), found.subject


@pytest.mark.parametrize("node", ["node-1", *ODD])
def test_what_is_gone_of_a_node_of_any_name_concerns_it_and_no_model_of_that_name(
    node: str,
) -> None:
    gone = happened(
        3, subjects.node_info(NodeId(node)), an_event(Gone(id=node), kind="document.retired")
    )
    assert concerns(gone, Target("node", node))
    assert not concerns(gone, Target("model", node))
