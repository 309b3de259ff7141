"""Why things are as they are, walked back on a log in memory: also what did not happen."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypeVar

import pytest
from msgspec import Raw
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import Card, CatalogRevision, CommandRecord, LastError, ShardPhase
from schemas.ids import EventId, GpuUuid, ModelName, NodeId, ReplicaId
from services.fleet.telling import why_answers
from services.fleet.telling.asking import Asking, Find, Past
from services.fleet.telling.happened import Happened, happened
from services.fleet.telling.swaps import refused_since, touches
from services.fleet.telling.why import (
    Story,
    why_gpu,
    why_model,
    why_node,
    why_replica,
)
from services.fleet.views import Live
from tests.builders import (
    NOW,
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
from tests.unit.fleet.test_concerns import log_of, matches

T = TypeVar("T")
LIVE = Live(now=NOW)
TINY = ReplicaId("tiny-0-1")
ERROR = LastError(failure="model_not_found", message="no such file", permanent=True)


def walked(walk: Asking[T], log: Sequence[Happened]) -> T:
    """As a server would answer."""
    found: list[Happened] | None = None
    while True:
        try:
            ask = next(walk) if found is None else walk.send(found)
        except StopIteration as end:
            result: T = end.value
            return result
        match ask:
            case Past(wanted):
                found = [each for each in log if any(matches(one, each.subject) for one in wanted)]
            case Find(id=event):
                found = [each for each in log if each.id == event]


def types(story: Story) -> list[str]:
    return [row.type for row in story.rows()]


def a_fleet(*nodes: str, replicas: int = 1) -> Fleet:
    """Its model is placed; one command made the catalog current."""
    fleet = Fleet(*(a_node(name) for name in nodes), models=[a_model(replicas=replicas)])
    fleet.turn()
    return fleet


# spec: O5 P6
def test_the_chain_of_a_replica_goes_from_the_endpoint_back_to_the_catalog() -> None:
    fleet = a_fleet("node-1")
    fleet.report(fleet.replicas()[0], "loading")
    fleet.ready()
    story = walked(why_replica(fleet.state, TINY), log_of(fleet.script))
    assert types(story) == [
        "endpoints.published",
        "shard.ready",
        "shard.loading",
        "assignment.changed",
        "replica.placed",
        "test.happened",  # The swap.
    ]
    assert story.missing == []
    rows = {row.id: row for row in story.rows()}
    cause = story.rows()[0].cause
    assert cause is not None
    assert rows[cause].type == "shard.ready"


# spec: O5
def test_what_routers_are_told_of_others_is_no_cause_and_that_one_is_left_out_is() -> None:
    fleet = a_fleet("node-1", "node-2", replicas=2)
    told: dict[str, list[int]] = {}
    fleet.ready()
    first, second = fleet.replicas()
    fleet.report(second, "failed")
    fleet.turn()
    endpoints = [each for each in log_of(fleet.script) if ".endpoints." in each.subject]
    for replica in (first, second):
        rows = walked(why_replica(fleet.state, replica.id), log_of(fleet.script)).rows()
        told[replica.id] = [row.seq for row in rows if row.type == "endpoints.published"]
    came, left = endpoints[0].sequence, endpoints[-1].sequence
    assert told == {first.id: [came], second.id: [left, came]}


# spec: C7
def test_the_last_command_about_the_catalog_is_told_where_it_was_refused() -> None:
    def said(sequence: int, verb: str, outcome: Literal["accepted", "refused"]) -> Happened:
        record = CommandRecord(
            verb=verb, actor="ann", source="", outcome=outcome, detail="bad_catalog: 1 fault"
        )
        return happened(sequence, subjects.command(verb), an_event(record))

    refused, taken = said(7, "apply", "refused"), said(8, "rollback", "accepted")
    assert walked(refused_since(), [refused]) == (
        "the last apply was refused, at 2026-11-30T12:00:00.000000Z (sequence 7): "
        "bad_catalog: 1 fault"
    )
    assert walked(refused_since(), [refused, taken]) == walked(refused_since(), []) == ""


# spec: O5
def test_a_replacement_is_there_because_a_node_was_lost() -> None:
    fleet = a_fleet("node-1", "node-2", "node-3")
    fleet.ready()
    lost = fleet.nodes()[0]
    fleet.wait(61, lost)
    fleet.turn()
    heir = next(r for r in fleet.replicas() if r.shards[0].node != lost)
    story = walked(why_replica(fleet.state, heir.id), log_of(fleet.script))
    placed = next(row for row in story.rows() if row.type == "replica.placed")
    verdict = next(row for row in story.rows() if row.id == placed.cause)
    assert verdict.summary == f"node {lost} is lost, silent for more than 60 s"
    first, because, *_ = why_answers.replica_answer(fleet.state, LIVE, TINY)
    assert (first, because) == (
        f"{TINY} is ready on {lost}; routers may choose it",
        f"but node {lost} is lost",
    )


# spec: O5 R2
def test_a_replica_too_many_is_one_because_a_node_came_back() -> None:
    fleet = a_fleet("node-1", "node-2", "node-3")
    fleet.ready()
    fleet.wait(61, fleet.nodes()[0])
    fleet.turn()
    fleet.report(fleet.replicas()[1], "loading")
    fleet.wait(1)
    fleet.turn()
    (ended,) = [replica for replica in fleet.replicas() if replica.goal != "run"]
    story = walked(why_replica(fleet.state, ended.id), log_of(fleet.script))
    end = next(row for row in story.rows() if row.type == "replica.stopping")
    assert next(row.type for row in story.rows() if row.id == end.cause) == "node.alive"


# spec: O5
def test_a_replica_that_is_gone_is_told_of_from_the_log() -> None:
    fleet = a_fleet("node-1")
    fleet.ready()
    fleet.swap()
    for _ in range(4):
        fleet.turn()
        fleet.obey()
    fleet.turn()
    assert fleet.replicas() == []
    story = walked(why_replica(fleet.state, TINY), log_of(fleet.script))
    assert "replica.gone" in types(story)
    assert "replica.draining" in types(story)
    assert story.missing == []
    assert why_answers.replica_answer(fleet.state, LIVE, TINY)[0] == f"{TINY} is gone"


# spec: O5
def test_what_its_node_was_told_of_others_is_no_cause() -> None:
    fleet = a_fleet("node-1")
    fleet.ready()
    fleet.swap(a_model(), a_model("other"))
    fleet.turn()
    fleet.ready("other")
    story = walked(why_replica(fleet.state, TINY), log_of(fleet.script))
    assert types(story).count("assignment.changed") == 1
    assert all("other" not in row.summary for row in story.rows())


# spec: P6
def test_a_model_without_room_says_what_was_short_and_which_swap_wanted_it() -> None:
    fleet = a_fleet("node-1", replicas=9)
    story = walked(why_model(fleet.state, ModelName("tiny")), log_of(fleet.script))
    assert types(story)[0] in {"assignment.changed", "placement.unplaceable"}
    verdict = next(row for row in story.rows() if row.type == "placement.unplaceable")
    assert verdict.summary.startswith("tiny: 8 of 9 placed, no room for more: 1 x ")
    assert "test.happened" in types(story)  # The swap.


@pytest.mark.parametrize(
    ("phase", "waits"),
    [
        (None, "it waits for the agent of node-1, which has said nothing of it yet"),
        ("starting", "it waits for the engine on node-1, which is starting"),
        ("failed", "trying again would change nothing: it waits for another catalog or node"),
    ],
)
def test_a_replica_that_is_not_ready_says_what_it_waits_for(
    phase: ShardPhase | None, waits: str
) -> None:
    replica = a_replica()
    script = Script(a_node(), replica)
    if phase is not None:
        script.add(a_shard(replica, phase, error=ERROR if phase == "failed" else None))
    told = why_answers.replica_answer(script.state, LIVE, replica.id)
    assert told[0].startswith(f"{TINY} is {phase or 'placed'} on node-1; routers do not choose it")
    assert told[-1] == waits


def test_a_replica_that_is_still_there_says_who_must_end_it() -> None:
    drains = Script(a_node(), a_replica(goal="drain"), a_shard(a_replica(goal="drain")))
    assert "it takes no new requests" in why_answers.replica_answer(drains.state, LIVE, TINY)[-1]
    stops = Script(a_node(), a_replica(goal="stop"), a_shard(a_replica(goal="stop"), "stopping"))
    told = why_answers.replica_answer(stops.state, LIVE, TINY)
    assert told[-1] == "it waits until node-1 says that it has stopped"


def test_an_orphan_is_told_of_as_what_its_node_still_says() -> None:
    script = Script(a_node(), a_shard(a_replica()))
    assert why_answers.replica_answer(script.state, LIVE, TINY) == (
        "node node-1 still says ready of it, and holds its cards until it says stopped",
    )


def test_a_node_says_since_when_it_is_lost_and_what_that_means() -> None:
    script = Script(a_node(), a_verdict())
    first, second = why_answers.node_answer(script.state, LIVE, NodeId("node-1"))
    assert first.startswith("node node-1 is lost since 2026-11-30T12:00:00")
    assert "stay held" in second
    script.add(a_replica())
    assert why_answers.node_answer(script.state, LIVE, NodeId("node-1"))[1] == TINY
    story = walked(why_node(NodeId("node-1")), log_of(script))
    assert [row.seq for row in story.rows()] == [3, 2]


# spec: P5
def test_a_card_says_who_holds_it_and_why() -> None:
    card = GpuUuid("GPU-1")
    info = replace(a_node(), cards=(Card(uuid=card, gpu_class="h100", memory_bytes=1 << 30),))
    replica = a_replica()
    held = replace(replica, shards=(replace(replica.shards[0], gpus=(card,)),))
    script = Script(info, held, a_verdict())
    told = why_answers.gpu_answer(script.state, LIVE, card)
    assert told[:2] == (
        f"card {card} on node-1 is healthy, held by {TINY}",
        "node node-1 is lost: the card is not free",
    )
    story = walked(why_gpu(script.state, card), log_of(script))
    assert [row.seq for row in story.rows()] == [3, 2]
    free = Script(info)
    assert why_answers.gpu_answer(free.state, LIVE, card) == (
        f"card {card} on node-1 is healthy, held by nobody",
    )


# spec: O5
def test_a_cause_that_is_not_kept_is_said_to_be_missing() -> None:
    fleet = a_fleet("node-1")
    log = [found for found in log_of(fleet.script) if found.subject != subjects.CATALOG]
    story = walked(why_replica(fleet.state, TINY), log)
    assert len(story.missing) == 1
    assert "is not in what is kept of the log" in story.missing[0]


# spec: L1
def test_what_a_command_wrote_leads_to_who_asked_for_it() -> None:
    command = EventId("c-1")
    record = CommandRecord(
        verb="apply", actor="ann", source="", outcome="accepted", detail="revision 1"
    )
    log = [
        _revision(1, 1, {"tiny": {"engine": "llamacpp"}}),
        happened(2, subjects.CATALOG, _sealed(command, command)),
        happened(3, subjects.command("apply"), _record(record, command)),
    ]
    story = walked(why_model(Script().state, ModelName("tiny")), log)
    asked, swap = story.rows()
    assert (asked.summary, swap.summary) == (
        "ann asked for apply: accepted, revision 1",
        "catalog r1 became current, by tests",
    )
    assert swap.cause == asked.id


# spec: O5 P6
def test_a_swap_that_left_a_model_alone_is_no_cause_of_it() -> None:
    tiny, more = {"engine": "llamacpp"}, {"engine": "llamacpp", "replicas": 2}
    contents: list[tuple[dict[str, object], dict[str, object]]] = [
        ({"tiny": tiny}, {}),
        ({"tiny": tiny, "other": tiny}, {"vllm": {}}),
        ({"tiny": more, "other": tiny}, {"vllm": {}}),
        ({"tiny": more, "other": tiny}, {"llamacpp": {}}),
        ({"tiny": more}, {"llamacpp": {}}),
    ]
    log: list[Happened] = []
    for number, (models, engines) in enumerate(contents, 1):
        log.append(_revision(2 * number - 1, number, models, engines))
        pointer = an_event(a_pointer(number), id_=f"c-{number}", kind="catalog.swapped")
        log.append(happened(2 * number, subjects.CATALOG, pointer))
    swaps = [found for found in log if found.subject == subjects.CATALOG]

    def touched(model: str) -> list[int]:
        name = ModelName(model)
        return [n for n, swap in enumerate(swaps, 1) if walked(touches(swap, name), log)]

    assert (touched("tiny"), touched("other")) == ([1, 3, 4], [2, 4, 5])
    assert touched("nope") == touched("*") == []
    state = Script().state
    for model, sequences in (("tiny", [8]), ("other", [10]), ("nope", []), ("*", [])):
        story = walked(why_model(state, ModelName(model)), log)
        assert [row.seq for row in story.rows()] == sequences


def _revision(
    sequence: int,
    revision: int,
    models: dict[str, object],
    engines: dict[str, object] | None = None,
) -> Happened:
    source = Raw(codec.encode({"models": models, "engines": engines or {}}))
    document = CatalogRevision(revision=revision, hash=f"hash-{revision}", source=source)
    payload = an_event(document, id_=f"r-{revision}", kind="catalog.stored")
    return happened(sequence, subjects.catalog_revision(revision), payload)


def _sealed(id_: EventId, corr: EventId) -> bytes:
    return an_event(a_pointer(), id_=id_, corr=corr, kind="catalog.swapped")


def _record(record: CommandRecord, command: EventId) -> bytes:
    return an_event(record, id_=f"{command}-record", corr=command, kind="command.accepted")


def test_nothing_is_told_of_what_never_was() -> None:
    state, log = Script().state, log_of(Script())
    for walk in (
        why_replica(state, ReplicaId("no id")),
        why_replica(state, TINY),
        why_node(NodeId("node-1")),
        why_gpu(state, GpuUuid("GPU-1")),
    ):
        assert walked(walk, log).rows() == ()


def test_the_state_may_go_on_while_a_walk_waits() -> None:
    card = Card(uuid=GpuUuid("GPU-1"), gpu_class="l40s", memory_bytes=48 << 30)
    script = Script(*(replace(a_node(name), cards=(card,)) for name in ("node-1", "node-2")))
    script.put(subjects.replica(ModelName("tiny"), 0), a_replica())
    for walk in (
        why_gpu(script.state, card.uuid),
        why_model(script.state, ModelName("tiny")),
        why_replica(script.state, TINY),
    ):
        asks = 0
        with suppress(StopIteration):
            next(walk)
            while True:
                asks += 1
                late = a_node(f"late-{script.state.sequence}")
                script.put(subjects.node_info(late.node), late)
                walk.send([])
        assert asks > 1
