import pytest
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import (
    Card,
    Endpoint,
    EndpointShard,
    Gone,
    LastError,
    NodeRefusal,
    PlacementVerdict,
    RouterReport,
)
from schemas.following import RouterRow
from schemas.ids import GpuUuid, ModelName, NodeId, RouterId
from services.fleet import views
from services.fleet.catalog import Catalog, from_yaml
from tests.builders import (
    NOW,
    Script,
    a_node,
    a_pointer,
    a_replica,
    a_shard,
    a_verdict,
    an_event,
    at,
    replica_name,
)

LIVE = views.Live(now=NOW + 100, leading=True, leader="control-1")


def a_catalog(replicas: int = 2) -> Catalog:
    made = from_yaml(
        f"models:\n  tiny: {{engine: llamacpp, source: /models/tiny.gguf, replicas: {replicas}}}\n"
    )
    assert isinstance(made, Catalog)
    return made


def test_a_model_is_ready_when_as_many_serve_as_are_wanted() -> None:
    first, second = a_replica(slot=0), a_replica(slot=1, node="node-2", port=17001)
    script = Script(a_node(), a_node("node-2"), first, second, a_shard(first), a_shard(second))
    (row,) = views.models(script.state, a_catalog())
    assert (row.condition, row.ready, row.wanted, row.reason) == ("ready", 2, 2, "")


def test_a_replica_on_a_lost_node_does_not_count_as_ready() -> None:  # spec: R2
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica), a_verdict())
    (row,) = views.models(script.state, a_catalog(1))
    assert (row.condition, row.ready) == ("starting", 0)


def test_a_failed_replica_shows_its_reason_in_every_table() -> None:  # spec: A3
    error = LastError(failure="model_not_found", message="no such file")
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica, "failed", error=error))
    (model,) = views.models(script.state, a_catalog(1))
    (row,) = views.replicas(script.state, LIVE)
    assert model.condition == "failed"
    assert model.reason == row.reason == "model_not_found: no such file"
    assert any(
        "no such file" in line for line in views.status(script.state, a_catalog(1), LIVE).attention
    )


def test_an_unplaceable_model_is_pending_with_the_placers_reason() -> None:
    verdict = PlacementVerdict(
        model=ModelName("tiny"),
        verdict="unplaceable",
        wanted=2,
        placed=0,
        refusals=(NodeRefusal(reason="cores", nodes=3, detail="needs 4, has 2"),),
        rules=1,
        seen=5,
    )
    script = Script(a_node())
    script.put(subjects.placement(ModelName("tiny")), verdict)
    (row,) = views.models(script.state, a_catalog())
    assert (row.condition, row.reason) == ("pending", "3 x cores (needs 4, has 2)")


def test_where_no_node_has_registered_the_reason_says_so() -> None:
    verdict = PlacementVerdict(
        model=ModelName("tiny"),
        verdict="unplaceable",
        wanted=2,
        placed=0,
        refusals=(NodeRefusal(reason="no_nodes", nodes=0, detail="no node has registered yet"),),
        rules=1,
        seen=5,
    )
    script = Script()
    script.put(subjects.placement(ModelName("tiny")), verdict)
    (row,) = views.models(script.state, a_catalog())
    assert (row.condition, row.reason) == ("pending", "no node has registered yet")


def test_a_model_that_left_the_catalog_is_shown_until_its_last_replica_is_gone() -> (
    None
):  # spec: C5
    replica = a_replica("going", goal="drain")
    script = Script(a_node(), replica)
    rows = {row.model: row.condition for row in views.models(script.state, a_catalog(0))}
    assert rows == {"going": "draining", "tiny": "stopped"}


def test_an_unrouted_endpoint_is_not_routed() -> None:
    replica = a_replica()
    endpoint = Endpoint(
        replica=replica.id,
        incarnation="1.0",
        address="127.0.0.1:17000",
        node=NodeId("node-1"),
        kind="llamacpp",
        unrouted=True,
    )
    script = Script(a_node(), replica, a_shard(replica))
    shard = EndpointShard(model=replica.model, shard=0, shards=1, endpoints=(endpoint,))
    script.put(subjects.endpoints(replica.model, 0), shard)
    (row,) = views.replicas(script.state, LIVE)
    assert not row.routed
    assert row.address == "127.0.0.1:17000"


def test_unknown_idleness_is_negative_in_json() -> None:  # spec: T8
    script = Script(a_node(), a_replica())
    (row,) = views.replicas(script.state, LIVE)
    assert b'"idleSeconds":-1' in codec.encode(row)


def test_status_counts_and_names_what_is_wrong() -> None:  # spec: O1
    replica = a_replica()
    script = Script(a_node(), a_node("node-2"), a_pointer(4), replica, a_shard(replica))
    script.add(a_verdict("node-2", "unreachable"))
    script.state.apply(99, subjects.node_info(NodeId("node-1")), b"\xff")
    found = views.status(script.state, a_catalog(1), LIVE)
    assert found.catalog_revision == 4
    assert found.nodes == {"alive": 1, "unreachable": 1}
    assert found.models == {"ready": 1}
    assert found.replicas == {"ready": 1}
    assert any("node-2 is unreachable" in line for line in found.attention)
    assert any("unreadable at sequence 99" in line for line in found.attention)


def test_a_void_report_is_shown_as_it_was_decided_by() -> None:  # spec: O1
    node = replace(
        a_node(), cards=(Card(uuid=GpuUuid("gpu-1"), gpu_class="l4", memory_bytes=24 << 30),)
    )
    replica, other = a_replica(), replica_name("other")
    orphan = replace(a_shard(), replica=other, gpus=(GpuUuid("gpu-1"),))
    script = Script(node, replica, a_shard(replica))
    script.put(subjects.node_shard(node.node, 1), orphan)
    (row,) = views.nodes(script.state, LIVE)
    assert row.cards[0].replica == other
    script.add(replace(node, incarnation="agent-2"))
    (row,) = views.nodes(script.state, LIVE)
    assert row.cards[0].replica is None
    (shown,) = views.replicas(script.state, LIVE)
    assert (shown.phase, shown.shards[0].phase) == ("placed", "placed")
    (model,) = views.models(script.state, a_catalog(1))
    assert (model.condition, model.ready) == ("starting", 0)


def test_a_replica_on_an_unreachable_node_is_not_counted_ready() -> None:  # spec: R2
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica), a_verdict(condition="unreachable"))
    (row,) = views.models(script.state, a_catalog(1))
    assert (row.condition, row.ready, row.reason) == ("degraded", 0, "node node-1 is unreachable")


def test_a_replica_on_a_removed_node_says_so() -> None:
    replica = a_replica()
    script = Script(a_node(), replica, a_shard(replica))
    script.put(subjects.node_info(NodeId("node-1")), Gone(id="node-1"))
    (row,) = views.replicas(script.state, LIVE)
    assert (row.phase, row.reason) == ("placed", "node node-1 was removed")


def test_a_replica_that_could_not_be_read_says_so() -> None:  # spec: L5
    script = Script(a_node(), a_replica())
    script.state.apply(99, subjects.replica(ModelName("tiny"), 0), b"not JSON")
    (row,) = views.replicas(script.state, LIVE)
    assert "could not be read" in row.reason


def test_status_names_who_puts_right_what_cannot_be_read_and_what_stops_deciding() -> None:
    # spec: L5
    script = Script(a_node())
    shard, strange = subjects.node_shard(NodeId("node-1"), 3), "flotilla.log.s.strange"
    script.state.apply(98, shard, b"not JSON")
    script.state.apply(99, strange, an_event({}, version=9))
    found = views.status(script.state, a_catalog(0), LIVE).attention
    assert [line.partition("; ")[2] for line in found if "flotilla.log" in line] == [
        "agent node-1, where it runs, puts it right within a minute, "
        f"else: flotilla journal mend {shard} --gone",
        f"flotilla journal mend {strange} --gone",
    ]


@pytest.mark.parametrize("survive", [True, False])
def test_status_says_where_engines_would_end_with_their_agent(survive: bool) -> None:  # spec: A4
    info = replace(a_node(), engines_survive_agent=survive)
    found = views.status(Script(info).state, a_catalog(0), LIVE)
    assert any("engines end when its agent ends" in line for line in found.warnings) is not survive


def test_what_agents_and_routers_report_of_damage_needs_attention() -> None:  # spec: O1
    node = replace(a_node(), cards_fault="the driver gave no answer in 30 s")
    live = views.Live(
        now=NOW,
        routers=(
            RouterRow(
                router=RouterId("r-1"), applied=7, heard_seconds_ago=0.5, damaged="another log"
            ),
        ),
        damaged_agents={node.node: "the log was shortened"},
    )
    state = Script(node).state
    (row,) = views.nodes(state, live)
    assert (row.damaged, row.cards_fault) == ("the log was shortened", node.cards_fault)
    assert views.status(state, a_catalog(0), live).attention == (
        "node node-1 acts on no assignment: the log was shortened",
        "cards of node node-1 could not be read: the driver gave no answer in 30 s",
        "router r-1 follows no log: another log",
    )


def test_a_router_that_started_again_knows_nothing_of_before() -> None:  # spec: T8
    report = RouterReport(
        router=RouterId("r"), incarnation="before", since=at(0), chunk=0, chunks=1
    )
    script = Script(a_node(), a_replica())
    script.put(subjects.router_report(RouterId("r"), 0), report)

    def shown(incarnation: str) -> float:
        row = RouterRow(
            router=RouterId("r"), incarnation=incarnation, applied=1, heard_seconds_ago=0.1
        )
        (replica,) = views.replicas(script.state, views.Live(now=NOW + 100, routers=(row,)))
        return replica.idle_seconds

    assert shown("before") == 100.0
    assert shown("after") < 0


def test_routers_are_shown_as_they_were_heard() -> None:
    live = views.Live(
        now=NOW, routers=(RouterRow(router=RouterId("r"), applied=7, heard_seconds_ago=0.5),)
    )
    assert views.status(Script().state, a_catalog(0), live).routers[0].applied == 7


# spec: O1
def test_one_row_is_that_of_the_whole_table() -> None:
    """On three nodes, of which one is lost: two models, and one that has left the catalog."""
    script = Script(*(a_node(f"node-{n}") for n in range(1, 4)), a_verdict("node-3"))
    for number, model in enumerate(("tiny", "other", "former"), 1):
        first = a_replica(model, 0, node=f"node-{number}")
        second = a_replica(model, 1, node=f"node-{number % 3 + 1}", port=17000 + number)
        script.add(first, second, a_shard(first), a_shard(second, "failed"))
    state, catalog = script.state, a_catalog()
    of_nodes, of_models = views.nodes(state, LIVE), views.models(state, catalog)
    assert len(of_nodes) == 3
    assert tuple(views.node(state, LIVE, row.node) for row in of_nodes) == of_nodes
    assert tuple(views.model(state, catalog, row.model) for row in of_models) == of_models
    assert len({row.condition for row in of_models}) > 1
    replicas = [row for model in of_models for row in views.replicas(state, LIVE, model.model)]
    assert sorted(replicas, key=lambda row: row.replica) == sorted(
        views.replicas(state, LIVE), key=lambda row: row.replica
    )
    assert views.node(state, LIVE, NodeId("node-9")) is None
    assert views.model(state, catalog, ModelName("nope")) is None
