"""What cannot be read and has no earlier version left: what it held stays held, though nobody knows what.

Pure. Such a document says nothing, so what may hang on it is left as it stands until somebody writes a
good one: on a node whose description, assignment or shard report is lost, everything; of a replica
whose own document is lost, what its nodes were last told.
"""

from collections.abc import Iterator, Mapping

from schemas import subjects
from schemas.catalog import Model
from schemas.documents import AssignedShard, Assignment, ReplicaDocument, ShardPlan
from schemas.ids import ModelName, NodeId, ReplicaId, replica_parts, token
from services.fleet.state import FleetState, Held


def is_unknown_node(state: FleetState, node: NodeId) -> bool:
    """Something that the node is, runs or should run is not known."""
    if not state.unread_of_node:
        return False
    of_node = state.unread_of_node.get(token(node), ())
    return any(state.held(subject) is None for subject in of_node)


def takes_nothing(state: FleetState, node: NodeId) -> str:
    """The subject for which nothing new is placed on the node; empty: there is none.

    An earlier description still says what it has, and nothing of what it has by now.
    """
    for subject in sorted(state.unread_of_node.get(token(node), ())):
        if state.held(subject) is None or subject == subjects.node_info(node):
            return subject
    return ""


def replicas_as_told(
    state: FleetState, models: Mapping[ModelName, Model]
) -> Iterator[Held[ReplicaDocument]]:
    """Replicas whose own document is lost, made again from what their nodes were told to run.

    They take the current profile's hash, and its memory: what they were placed for is not known, and
    being another profile is no reason to replace what cannot be ended.
    """
    if not state.unreadable:
        return
    replicas = subjects.ALL_REPLICAS.removesuffix(">")
    lost = {
        subject
        for subject in state.unreadable
        if subject.startswith(replicas) and state.held(subject) is None
    }
    if not lost:
        return
    told: dict[ReplicaId, list[tuple[Held[Assignment], AssignedShard]]] = {}
    for _, held in sorted(state.assignments.items()):
        for shard in held.document.shards:
            if subjects.replica_slot(replica_parts(shard.replica)) in lost:
                told.setdefault(shard.replica, []).append((held, shard))
    for _, parts in sorted(told.items()):
        yield _as_told(parts, models)


def _as_told(
    parts: list[tuple[Held[Assignment], AssignedShard]], models: Mapping[ModelName, Model]
) -> Held[ReplicaDocument]:
    newest, first = max(parts, key=lambda part: (part[1].attempt, part[0].sequence))
    model, name = models.get(first.model), replica_parts(first.replica)
    cpu = None if model is None else model.profile.cpu
    plans = [
        ShardPlan(
            node=held.document.node,
            rank=shard.launch.rank,
            gpus=shard.launch.gpus,
            port=shard.launch.port,
            rendezvous_port=shard.launch.rendezvous_port,
            cores=shard.launch.cores,
            memory_bytes=0 if cpu is None or shard.launch.gpus else cpu.memory_bytes,
        )
        for held, shard in parts
        if shard.attempt == first.attempt
    ]
    document = ReplicaDocument(
        id=first.replica,
        model=first.model,
        slot=name.slot,
        generation=name.generation,
        revision=0,
        profile_hash="" if model is None else model.profile_hash,
        attempt=first.attempt,
        shards=tuple(sorted(plans, key=lambda plan: plan.rank)),
        goal="run" if first.goal == "run" else "drain",
        since=newest.at,
    )
    return Held(newest.sequence, first.cause or newest.event, newest.type, newest.at, document)
