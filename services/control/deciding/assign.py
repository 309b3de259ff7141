"""Assignment documents: the full set of shards of each node. Pure.

A shard that its node was told already keeps the launch it was given, so that a takeover or another
version of this program rewrites nothing. A shard is told to drain only when every router that beats
has applied the document that unroutes it, or when its grace has ended (R7); once told, it stays so.
A node with nothing to run keeps an empty document: absent would mean "unknown", not "stop".
"""

from collections.abc import Sequence

from schemas import codec, subjects
from schemas.documents import (
    AssignedShard,
    Assignment,
    EndpointShard,
    ReplicaDocument,
    ShardGoal,
    ShardPlan,
)
from schemas.ids import EventId, NodeId, ReplicaId
from services.control.deciding.adopting import may_be_told
from services.control.deciding.drafts import Order
from services.control.deciding.publish import shard_of
from services.control.deciding.silence import UNREACHABLE_SECONDS
from services.control.deciding.turn import Told, Turn
from services.fleet.standing import Standing
from services.fleet.state import FleetState
from services.fleet.unread import is_unknown_node


def told(state: FleetState) -> Told:
    """What the nodes' documents hold."""
    found: Told = {}
    for held in state.assignments.values():
        node = held.document.node
        for shard in held.document.shards:
            found.setdefault(shard.replica, []).append((node, shard))
    return found


def assign(turn: Turn) -> None:
    """Write what changed of every node's assignment."""
    shards: dict[NodeId, list[AssignedShard]] = {}
    for held in turn.state.infos.values():
        shards.setdefault(held.document.node, [])
    for assignment in turn.state.assignments.values():
        shards.setdefault(assignment.document.node, [])
    for standing in turn.everyone:
        for plan in standing.document.shards:
            shard = _shard(turn, standing, plan)
            if shard is not None:
                shards.setdefault(plan.node, []).append(shard)
    for node in sorted(shards):
        _write(turn, node, sorted(shards[node], key=_by_replica))


def _shard(turn: Turn, standing: Standing, plan: ShardPlan) -> AssignedShard | None:
    replica = standing.document
    if replica.goal == "stop":
        return None
    known = turn.told_of(replica, plan)
    drains = replica.goal == "drain" and (
        (known is not None and known.goal == "drain") or may_stop(turn, standing)
    )
    goal: ShardGoal = "drain" if drains else "run"
    if known is not None and known.goal == goal:
        return known
    spec = turn.launch_of(replica, plan)
    if spec is None:
        return None
    return AssignedShard(
        replica=replica.id,
        model=replica.model,
        attempt=replica.attempt,
        goal=goal,
        grace_seconds=_left(turn, replica) if drains else None,
        launch=spec,
        cause=standing.event,
    )


def _left(turn: Turn, replica: ReplicaDocument) -> float | None:
    """Seconds of its grace that are left now; None: it may take for ever."""
    if replica.deadline is None:
        return None
    return max(0.0, codec.seconds(replica.deadline) - turn.now)


def may_stop(turn: Turn, standing: Standing) -> bool:
    """No router will send it anything new, or its grace has ended."""
    replica = standing.document
    left = _left(turn, replica)
    if left == 0:
        return True
    turn.waits += [] if left is None else [left]
    count = _documents(turn, standing)
    if count == 0:
        return True  # Never published.
    silence = turn.silence
    if not silence.routers_known:
        turn.waits.append(UNREACHABLE_SECONDS - silence.hearing_seconds)
        return False
    subject = subjects.endpoints(replica.model, shard_of(replica.id, count))
    if not silence.routers:
        return True
    held = turn.state.held(subject)
    if subject in turn.drafts or held is None:
        return False  # Its sequence is not known yet.
    return all(applied >= held.sequence for applied in silence.routers.values())


def _documents(turn: Turn, standing: Standing) -> int:
    """How many endpoint documents the model has, after this pass."""
    model = standing.document.model
    first = subjects.endpoints(model, 0)
    document = turn.drafts.document(first)
    if document is None and (held := turn.state.held(first)) is not None:
        document = held.document
    return document.shards if isinstance(document, EndpointShard) else 0


def _by_replica(shard: AssignedShard) -> ReplicaId:
    return shard.replica


def _write(turn: Turn, node: NodeId, shards: list[AssignedShard]) -> None:
    if is_unknown_node(turn.state, node) or not may_be_told(turn, node):
        return
    held = turn.state.assignment(node)
    same = held is not None and held.document.shards == tuple(shards)
    subject = subjects.assignment(node)
    if same and subject not in turn.state.unreadable:
        return
    document = Assignment(node=node, shards=tuple(shards))
    old = () if held is None else held.document.shards
    added = [shard.cause for shard in shards if shard not in old]
    turn.drafts.put(
        Order.ASSIGNMENT,
        subject,
        "assignment.changed",
        document,
        cause=added[0] if added else _end_of(turn, old, shards),
    )


def _end_of(
    turn: Turn, old: Sequence[AssignedShard], new: Sequence[AssignedShard]
) -> EventId | None:
    """The event that ended the first shard that is no longer there."""
    left = {shard.replica for shard in new}
    ended = {shard.replica for shard in old} - left
    for _, standings in sorted(turn.standings.items()):
        for standing in standings:
            if standing.id in ended:
                return standing.event
    return None
