from msgspec.structs import replace

from schemas import subjects
from schemas.catalog import GpuNeed, Model
from schemas.documents import (
    Card,
    CatalogPointer,
    EndpointShard,
    Gone,
    LastError,
    NodeInfo,
    Session,
)
from schemas.ids import GpuUuid, NodeId, RouterId
from services.control.deciding.drafts import batches
from tests.builders import a_model, a_node, a_shard, at, replica_name
from tests.support.deciding import Fleet

GIB = 1 << 30
ROUTER = RouterId("router-1")


def a_gpu_node(name: str, cards: int = 2) -> NodeInfo:
    return replace(
        a_node(name),
        cards=tuple(
            Card(uuid=GpuUuid(f"{name}-{n}"), gpu_class="l4", memory_bytes=24 * GIB)
            for n in range(cards)
        ),
    )


def a_gpu_model(name: str = "tiny", count: int = 1, replicas: int = 1, nodes: int = 1) -> Model:
    model = a_model(name, replicas=replicas)
    need = GpuNeed(gpu_class="l4", count=count)
    return replace(model, profile=replace(model.profile, gpu=need, cpu=None, nodes=nodes))


def two_nodes(model: Model | None = None) -> Fleet:
    """Two nodes with one ready replica on each."""
    fleet = Fleet(a_node("node-1"), a_node("node-2"), models=[model or a_model(replicas=2)])
    fleet.turn()
    fleet.ready()
    assert fleet.nodes() == ["node-1", "node-2"]
    return fleet


def lose(fleet: Fleet, node: str) -> None:
    fleet.unanswered.add(NodeId(node))
    fleet.wait(60, node)
    fleet.turn()


# spec: R1
def test_places_what_is_missing_and_says_so_in_a_safe_order() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    decision = fleet.turn()
    assert [draft.type for draft in decision.drafts] == [
        "replica.placed",
        "assignment.changed",
        "placement.placed",
    ]
    assert [replica.id for replica in fleet.replicas()] == [replica_name("tiny")]
    assert list(fleet.assigned("node-1")) == [replica_name("tiny")]


# spec: L1
def test_every_draft_names_its_cause() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    placed, assigned, _ = fleet.turn().drafts
    pointer = fleet.state.catalog[()].event
    assert (placed.cause, placed.corr) == (pointer, pointer)
    assert assigned.cause == placed.id
    assert fleet.assigned("node-1")[replica_name("tiny")].cause == placed.id
    fleet.report(fleet.replicas()[0])
    (published,) = fleet.turn().drafts
    assert published.cause == fleet.state.shards_of(replica_name("tiny"))[0].event


def test_asks_for_nothing_twice() -> None:
    fleet = two_nodes()
    assert fleet.ask().drafts == ()


# spec: P1
def test_spreads_cpu_replicas() -> None:
    fleet = Fleet(*(a_node(f"node-{n}") for n in range(3)), models=[a_model(replicas=6)])
    fleet.turn()
    assert sorted(fleet.nodes()) == [f"node-{n}" for n in range(3) for _ in range(2)]


# spec: P1 P5
def test_fills_cards_and_gives_none_twice() -> None:
    fleet = Fleet(a_gpu_node("node-1"), a_gpu_node("node-2"), models=[a_gpu_model(replicas=5)])
    fleet.turn()
    assert fleet.nodes() == ["node-1", "node-1", "node-2", "node-2"]
    cards = [gpu for replica in fleet.replicas() for gpu in replica.shards[0].gpus]
    assert len(set(cards)) == 4
    placement = fleet.state.placement(fleet.replicas()[0].model)
    assert placement is not None
    assert (placement.document.verdict, placement.document.placed) == ("unplaceable", 4)
    assert placement.document.refusals[0].reason == "too_few_cards"


# spec: P5
def test_a_card_is_held_by_a_shard_that_no_decision_knows() -> None:
    fleet = Fleet(a_gpu_node("node-1", cards=1), models=[])
    orphan = replace(a_shard(), replica=replica_name("old", 0, 7), gpus=(GpuUuid("node-1-0"),))
    fleet.script.put(subjects.node_shard(NodeId("node-1"), 0), orphan)
    fleet.swap(a_gpu_model())
    fleet.turn()
    assert fleet.replicas() == []
    assert fleet.assigned("node-1") == {}
    assert fleet.state.assignment(NodeId("node-1")) is not None
    fleet.obey()
    fleet.turn()
    assert fleet.nodes() == ["node-1"]


def test_the_launch_is_the_profile_and_the_plan() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    launch = fleet.assigned("node-1")[replica_name("tiny")].launch
    assert (launch.served_name, launch.source, launch.port, launch.host, launch.cores) == (
        "tiny",
        "/models/tiny.gguf",
        17000,
        "127.0.0.1",
        1.0,
    )


# spec: P3
def test_a_gang_is_one_replica_with_a_shard_on_each_node() -> None:
    nodes = [replace(a_gpu_node(f"node-{n}"), fabric="east") for n in (1, 2, 3)]
    fleet = Fleet(*nodes, models=[a_gpu_model(count=2, nodes=2)])
    fleet.turn()
    (replica,) = fleet.replicas()
    assert [(plan.node, plan.rank) for plan in replica.shards] == [("node-1", 0), ("node-2", 1)]
    launches = [fleet.assigned(node)[replica.id].launch for node in ("node-1", "node-2")]
    assert [launch.rank for launch in launches] == [0, 1]
    assert {launch.rendezvous_port for launch in launches} == {replica.shards[0].rendezvous_port}
    assert all(launch.restart is None for launch in launches)


# spec: T2
def test_a_ready_replica_becomes_an_endpoint_and_a_failed_one_is_none() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    replica = fleet.replicas()[0]
    fleet.report(replica, "loading")
    fleet.turn()
    assert fleet.endpoints() == {}
    fleet.report(replica)
    fleet.turn()
    endpoint = fleet.endpoints()[replica.id]
    assert (endpoint.address, endpoint.incarnation, endpoint.unrouted) == (
        "127.0.0.1:17000",
        "1.0",
        False,
    )
    fleet.report(replica, "failed", error=LastError(failure="killed", message="killed"))
    fleet.turn()
    assert fleet.endpoints() == {}
    fleet.report(replica, run=1)
    fleet.turn()
    assert fleet.endpoints()[replica.id].incarnation == "1.1"


# spec: L8
def test_a_report_that_comes_twice_changes_nothing() -> None:
    fleet = two_nodes()
    fleet.report(fleet.replicas()[0])
    assert fleet.ask().drafts == ()


def test_reports_of_an_earlier_agent_that_found_no_such_session_say_nothing() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    (replica,) = fleet.replicas()
    process = a_shard(replica).process
    assert process is not None
    found = Session(replica=replica.id, attempt=1, process=process)
    again = replace(a_node("node-1"), incarnation="agent-2", sessions=(found,))
    fleet.script.add(again)
    assert fleet.turn().drafts == ()
    fleet.script.add(replace(again, incarnation="agent-3", sessions=()))
    fleet.turn()
    assert fleet.endpoints() == {}
    assert fleet.goals() == ["run"]


# spec: L8 A4
def test_a_new_agents_report_counts_also_before_it_has_described_the_node() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    (replica,) = fleet.replicas()
    early = replace(a_shard(replica), incarnation="agent-2")
    fleet.script.put(subjects.node_shard(NodeId("node-1"), 0), early)
    fleet.turn()
    assert list(fleet.endpoints()) == [replica.id]


# spec: C5 R3
def test_a_removed_models_replica_on_a_lost_node_is_gone_at_once() -> None:
    fleet = two_nodes()
    lose(fleet, "node-2")
    fleet.swap()
    fleet.turn()
    assert "node-2" not in fleet.nodes()
    assert {endpoint.node for endpoint in fleet.endpoints().values()} == {"node-1"}


# spec: R2
def test_an_unreachable_node_is_the_last_choice_and_nothing_moves() -> None:
    fleet = two_nodes()
    fleet.wait(5, "node-2")
    fleet.turn()
    assert [e.last_choice for _, e in sorted(fleet.endpoints().items())] == [False, True]
    assert fleet.nodes() == ["node-1", "node-2"]
    fleet.wait(1)
    fleet.turn()
    assert [e.last_choice for _, e in sorted(fleet.endpoints().items())] == [False, False]


# spec: R2 R3
def test_a_lost_replica_is_rebuilt_and_leaves_when_the_replacement_serves() -> None:
    fleet = two_nodes()
    lose(fleet, "node-2")
    assert fleet.nodes() == ["node-1", "node-2", "node-1"]
    assert len(fleet.endpoints()) == 2  # The one on the lost node may still answer.
    fleet.report(fleet.replicas()[2])
    fleet.turn()
    assert fleet.nodes() == ["node-1", "node-1"]
    assert {endpoint.node for endpoint in fleet.endpoints().values()} == {"node-1"}
    assert fleet.assigned("node-2") == {}
    assert fleet.ask().drafts == ()


# spec: R2 P5
def test_a_lost_node_holds_its_cards_until_it_says_stopped() -> None:
    fleet = Fleet(a_gpu_node("node-1", 1), a_gpu_node("node-2", 1), models=[a_gpu_model()])
    fleet.turn()
    fleet.ready()
    lose(fleet, "node-1")
    fleet.report(fleet.replicas()[1])
    fleet.turn()
    assert fleet.nodes() == ["node-2"]
    fleet.unanswered.clear()
    fleet.wait(1)
    fleet.swap(a_gpu_model(replicas=2))
    fleet.turn()
    assert fleet.nodes() == ["node-2"]  # Its shard document still holds the card.
    fleet.obey()
    fleet.turn()
    assert sorted(fleet.nodes()) == ["node-1", "node-2"]


# spec: R2
def test_a_node_that_returns_first_keeps_its_replica_and_the_surplus_goes() -> None:
    fleet = two_nodes()
    lose(fleet, "node-2")
    fleet.unanswered.clear()
    fleet.wait(1)
    fleet.turn()
    assert fleet.goals() == ["run", "run", "stop"]
    assert fleet.nodes() == ["node-1", "node-2", "node-1"]
    fleet.wait(10)
    fleet.turn()
    assert fleet.goals() == ["run", "run"]


def test_a_model_may_wait_for_ever() -> None:
    fleet = two_nodes(replace(a_model(replicas=2), patience_seconds=None))
    fleet.unanswered.add(NodeId("node-2"))
    fleet.wait(3600, "node-2")
    fleet.turn()
    assert fleet.nodes() == ["node-1", "node-2"]


# spec: R4
def test_in_a_fleet_of_two_a_node_that_answers_a_probe_is_not_lost() -> None:
    fleet = two_nodes()
    fleet.wait(600, "node-2")
    fleet.turn()
    assert fleet.nodes() == ["node-1", "node-2"]


# spec: L3
def test_nobody_is_judged_for_the_time_in_which_nobody_heard() -> None:
    fleet = two_nodes()
    fleet.unanswered |= {NodeId("node-1"), NodeId("node-2")}
    fleet.hearing = 1.0
    fleet.wait(3600, "node-1", "node-2")
    assert fleet.turn().drafts == ()


# spec: C5 R7
def test_a_removed_model_is_unrouted_then_drained_then_gone() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.routers[ROUTER] = fleet.state.sequence
    fleet.swap()
    decision = fleet.turn()
    assert [draft.type for draft in decision.drafts] == [
        "endpoints.published",
        "replica.draining",
        "placement.gone",
    ]
    assert [endpoint.unrouted for endpoint in fleet.endpoints().values()] == [True]
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "run"
    fleet.routers[ROUTER] = fleet.state.sequence
    fleet.turn()
    shard = fleet.assigned("node-1")[replica_name("tiny")]
    assert (shard.goal, shard.grace_seconds) == ("drain", 600.0)
    assert fleet.replicas()[0].deadline == at(600)
    fleet.obey()
    fleet.turn()
    assert fleet.replicas() == []
    assert fleet.assigned("node-1") == {}
    assert fleet.endpoints() == {}
    assert fleet.state.endpoints == {}
    assert fleet.state.placements == {}
    fleet.obey()
    assert fleet.ask().drafts == ()


# spec: R7
def test_only_routers_that_beat_are_waited_for() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.swap()
    fleet.turn()
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "drain"


# spec: R7 L2
def test_no_router_counts_as_silent_before_it_could_be_heard() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.swap()
    fleet.hearing = 2.0
    decision = fleet.turn()
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "run"
    assert decision.wake_at == fleet.now + 3.0
    fleet.hearing = 5.0
    fleet.turn()
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "drain"


# spec: R7
def test_a_router_that_never_applies_is_not_waited_for_longer_than_the_grace() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.routers[ROUTER] = 1
    fleet.swap()
    fleet.turn()
    fleet.wait(599)
    assert fleet.turn().drafts == ()
    fleet.wait(1)
    fleet.turn()
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "drain"


# spec: R7
def test_a_node_is_told_how_long_it_may_drain_not_until_when() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.routers[ROUTER] = 1
    fleet.swap()
    fleet.turn()
    fleet.wait(40)
    fleet.routers[ROUTER] = fleet.state.sequence
    fleet.turn()
    told = fleet.assigned("node-1")[replica_name("tiny")]
    assert (told.goal, told.grace_seconds) == ("drain", 560.0)
    fleet.wait(100)
    assert fleet.turn().drafts == ()  # The agent counts down by itself.


# spec: C9
def test_zero_replicas_keeps_the_model_and_runs_none() -> None:
    fleet = two_nodes()
    fleet.swap(a_model(replicas=0))
    fleet.turn()
    fleet.obey()
    fleet.turn()
    assert fleet.replicas() == []
    placement = fleet.state.placement(a_model().name)
    assert placement is not None
    assert placement.document.wanted == 0


def test_fewer_replicas_retires_the_unready_first_then_the_newest() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model(replicas=3)])
    fleet.turn()
    for replica in fleet.replicas()[1:]:
        fleet.report(replica)
    fleet.turn()
    fleet.swap(a_model(replicas=1))
    fleet.turn()
    assert fleet.goals() == ["stop", "run", "drain"]


def test_a_replica_that_its_agent_stopped_is_replaced() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.report(fleet.replicas()[0], "stopped")
    fleet.turn()
    assert [replica.id for replica in fleet.replicas()] == [replica_name("tiny", 1)]
    fleet.obey()  # The agent gives its slot free.
    fleet.report(fleet.replicas()[0], "stopped")
    fleet.turn()
    assert [replica.id for replica in fleet.replicas()] == [replica_name("tiny", 0, 2)]


def test_a_taken_port_is_replaced_by_the_next_as_a_new_attempt() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    taken = LastError(failure="port_in_use", message="17000 is taken")
    fleet.report(fleet.replicas()[0], "failed", error=taken)
    fleet.turn()
    (replica,) = fleet.replicas()
    assert (replica.attempt, replica.shards[0].port) == (2, 17001)
    shard = fleet.assigned("node-1")[replica.id]
    assert (shard.attempt, shard.launch.port) == (2, 17001)
    assert fleet.ask().drafts == ()


def find_port_taken(fleet: Fleet) -> int:
    """The node reports it, and control decides. Returns the attempt."""
    taken = LastError(failure="port_in_use", message="in a stranger's hands")
    fleet.report(fleet.replicas()[0], "failed", error=taken)
    fleet.turn()
    return fleet.replicas()[0].attempt


def test_between_two_taken_ports_there_is_a_growing_pause() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    assert [find_port_taken(fleet) for _ in range(10)] == [2] * 10
    assert fleet.ask().wake_at == fleet.now + 1.0
    fleet.wait(1)
    assert [find_port_taken(fleet) for _ in range(10)] == [3] * 10
    fleet.wait(1)
    assert find_port_taken(fleet) == 3
    fleet.wait(1)
    assert find_port_taken(fleet) == 4


def test_a_replica_whose_every_port_is_taken_stays_failed_with_that_reason() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    for _ in range(300):
        fleet.wait(600)
        find_port_taken(fleet)
    (replica,) = fleet.replicas()
    assert (replica.attempt, replica.taken_ports, replica.goal) == (9, 8, "run")
    assert fleet.ask().drafts == ()
    (reported,) = fleet.state.shards_of(replica.id)
    assert reported.document.error is not None
    assert reported.document.error.failure == "port_in_use"


# spec: C6
def test_a_changed_profile_rolls_one_surge_at_a_time() -> None:
    fleet = two_nodes()
    new = a_model(replicas=2, source="/models/new.gguf")
    fleet.swap(new)
    fleet.turn()
    assert fleet.goals() == ["run", "run", "run"]
    assert fleet.ask().drafts == ()
    fleet.ready()
    assert sorted(fleet.goals()) == ["drain", "run", "run", "run"]
    for _ in range(8):
        fleet.obey()
        fleet.wait(1)
        fleet.turn()
        ready = [r for r in fleet.replicas() if r.goal == "run" and r.id in fleet.endpoints()]
        assert len(ready) >= 2
    assert {replica.profile_hash for replica in fleet.replicas()} == {new.profile_hash}
    assert fleet.goals() == ["run", "run"]


# spec: C6 R2
def test_a_node_that_is_silent_for_now_does_not_end_the_old_replica_that_serves_there() -> None:
    model = a_model(replicas=1)
    fleet = Fleet(a_node("node-1"), models=[model])
    fleet.turn()
    fleet.ready()
    fleet.swap(a_model(replicas=1, source="/models/new.gguf"))
    fleet.turn()
    assert fleet.goals() == ["run", "run"]  # The new one does not get ready.
    fleet.wait(6, "node-1")
    fleet.turn()
    assert fleet.goals() == ["run", "run"]
    assert len(fleet.endpoints()) == 1


# spec: C6 R2
def test_where_no_surge_fits_an_old_replica_on_a_silent_node_still_counts_for_min_ready() -> None:
    model = replace(a_gpu_model(replicas=2), profile_hash="old")
    fleet = Fleet(a_gpu_node("node-1", 1), a_gpu_node("node-2", 1), models=[model])
    fleet.turn()
    fleet.ready()
    fleet.wait(6, "node-1")
    fleet.swap(replace(model, profile_hash="new"))
    fleet.turn()
    assert fleet.goals() == ["run", "run"]


# spec: C6
def test_where_no_surge_fits_one_old_replica_is_drained_first() -> None:
    model = replace(a_gpu_model(replicas=2), profile_hash="old")
    fleet = Fleet(a_gpu_node("node-1"), models=[model])
    fleet.turn()
    fleet.ready()
    fleet.swap(replace(model, profile_hash="new"))
    fleet.turn()
    assert sorted(fleet.goals()) == ["drain", "run"]
    fleet.swap(replace(model, profile_hash="new", min_ready=2))
    for _ in range(8):
        fleet.obey()
        fleet.turn()
    assert [replica.profile_hash for replica in fleet.replicas()] == ["old", "new"]


# spec: C6
def test_where_no_surge_fits_old_ones_go_one_at_a_time() -> None:
    model = replace(a_gpu_model(replicas=2), profile_hash="old")
    fleet = Fleet(a_gpu_node("node-1"), models=[model])
    fleet.turn()
    fleet.ready()
    fleet.swap(replace(model, profile_hash="new", min_ready=0))
    fleet.turn()
    assert sorted(fleet.goals()) == ["drain", "run"]
    assert fleet.ask().drafts == ()


# spec: R7 L2
def test_a_shard_that_was_told_to_drain_is_not_told_to_run_again() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_model()])
    fleet.turn()
    fleet.ready()
    fleet.swap()
    fleet.turn()
    fleet.hearing = 0.5
    assert fleet.turn().drafts == ()
    assert fleet.assigned("node-1")[replica_name("tiny")].goal == "drain"


# spec: C1
def test_under_a_refused_catalog_what_runs_goes_on() -> None:
    fleet = two_nodes()
    fleet.models = None
    fleet.report(fleet.replicas()[0], "failed", error=LastError(failure="killed", message="x"))
    fleet.turn()
    assert fleet.goals() == ["run", "run"]
    assert len(fleet.endpoints()) == 1
    lose(fleet, "node-2")
    assert fleet.nodes() == ["node-1", "node-2"]


# spec: L5
def test_what_could_not_be_read_is_left_as_it_is() -> None:
    fleet = two_nodes()
    subject = subjects.replica(a_model().name, 0)
    fleet.state.apply(fleet.state.sequence + 1, subject, b"not JSON")
    fleet.script.log.append((fleet.state.sequence, subject, b"not JSON"))
    fleet.swap()
    fleet.turn()
    assert fleet.goals() == ["run", "drain"]


# spec: P4
def test_says_what_it_waits_for_where_nothing_fits() -> None:
    fleet = Fleet(a_node("node-1"), models=[a_gpu_model()])
    fleet.turn()
    placement = fleet.state.placement(a_model().name)
    assert placement is not None
    assert placement.document.refusals[0].reason == "gpu_class"
    assert fleet.ask().drafts == ()
    fleet.script.add(a_gpu_node("node-1"))
    fleet.turn()
    assert fleet.nodes() == ["node-1"]


def test_endpoints_are_cut_into_documents_of_at_most_five_hundred() -> None:
    many = replace(a_node("node-1", cores=1000.0, memory_gib=1000), ports=(17000, 18999))
    fleet = Fleet(many, models=[a_model(replicas=600)])
    fleet.turn()
    fleet.ready()
    shards = [held.document for held in fleet.state.endpoints.values()]
    assert {shard.shards for shard in shards} == {len(shards)}
    assert len(shards) > 1
    assert max(len(shard.endpoints) for shard in shards) <= subjects.ENDPOINTS_PER_SHARD
    fleet.swap(a_model(replicas=1))
    for _ in range(3):
        fleet.turn()
        fleet.obey()
    assert len(fleet.state.endpoints) == 1
    assert len(fleet.endpoints()) == 1


def test_batches_keep_together_what_belongs_together() -> None:
    fleet = two_nodes()
    fleet.swap()
    drafts = fleet.ask().drafts
    tied = (drafts[0], *(replace(draft, together=True) for draft in drafts[1:3]), *drafts[3:])
    assert [len(batch) for batch in batches(tied, largest=3)] == [3, len(drafts) - 3]


def test_a_document_of_another_kind_is_no_replica() -> None:
    fleet = Fleet(a_node("node-1"))
    fleet.script.put(subjects.endpoints(a_model().name, 3), Gone(id="x"))
    fleet.script.put(
        subjects.endpoints(a_model("left").name, 0),
        EndpointShard(model=a_model("left").name, shard=0, shards=1, endpoints=()),
    )
    fleet.script.add(CatalogPointer(revision=2, hash="", author="tests"))
    fleet.turn()
    assert fleet.state.endpoints == {}
