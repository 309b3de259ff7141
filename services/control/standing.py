"""How each replica and node stands in this pass: read once from the state, then changed by the pass.

Pure. A shard document is void when a newer incarnation of its agent described the node since, and did
not find that session alive: it says nothing any more, and holds nothing.
"""

from collections.abc import Iterable

from msgspec import Struct

from schemas import subjects
from schemas.documents import NodeCondition, NodeInfo, NodeVerdict, ReplicaDocument, ShardStatus
from schemas.ids import EventId, NodeId, ReplicaId
from services.fleet.state import FleetState, Held


class Verdict(Struct, frozen=True):
    """A node's verdict in this pass, and the event that gave it."""

    document: NodeVerdict | None
    event: EventId | None

    @property
    def condition(self) -> NodeCondition:
        return "alive" if self.document is None else self.document.condition

    def lost_for(self, patience_seconds: float | None) -> bool:
        """Silent for longer than a model's patience; None waits for ever."""
        if self.document is None or self.document.condition != "lost" or patience_seconds is None:
            return False
        outlasted = self.document.lost_patience_seconds
        return outlasted is not None and outlasted >= patience_seconds


class Standing(Struct, kw_only=True):
    """One replica in this pass. `document` and `event` follow what the pass decides."""

    document: ReplicaDocument
    event: EventId
    untouchable: bool
    """Something of it could not be read: it is counted, and left as it is until that is mended."""
    shards: tuple[Held[ShardStatus], ...]
    """What agents say of it, in any attempt, void reports left out."""
    alive: bool
    """Every node of it is alive."""
    lost: bool
    """A node of it is lost for this model, or was removed."""
    gone: bool = False

    @property
    def id(self) -> ReplicaId:
        return self.document.id

    @property
    def current(self) -> tuple[Held[ShardStatus] | None, ...]:
        """The report of each planned shard in the current attempt, in rank order."""
        found = {
            (held.document.node, held.document.rank): held
            for held in self.shards
            if held.document.attempt == self.document.attempt
        }
        return tuple(found.get((plan.node, plan.rank)) for plan in self.document.shards)

    @property
    def head(self) -> Held[ShardStatus] | None:
        """The report of rank 0, which serves HTTP."""
        return self.current[0]

    @property
    def serving(self) -> bool:
        """Every shard of the current attempt is ready, as far as the agents have said."""
        return all(held is not None and held.document.phase == "ready" for held in self.current)

    @property
    def ready(self) -> bool:
        """Serving, and heard from."""
        return self.serving and self.alive

    @property
    def running(self) -> bool:
        """An agent has something of it left."""
        return any(held.document.phase != "stopped" for held in self.shards)

    @property
    def ended(self) -> bool:
        """Its agents stopped all of the current attempt, and will not start it again."""
        return all(held is not None and held.document.phase == "stopped" for held in self.current)


def is_void(held: Held[ShardStatus], info: Held[NodeInfo] | None) -> bool:
    """A newer incarnation of the agent found no such session."""
    if info is None or held.sequence > info.sequence:
        return False
    shard, node = held.document, info.document
    if shard.incarnation == node.incarnation:
        return False
    found = {(session.replica, session.attempt) for session in node.sessions}
    return (shard.replica, shard.attempt) not in found


def is_removed(state: FleetState, node: NodeId) -> bool:
    """No agent describes the node any more."""
    return state.info(node) is None and subjects.node_info(node) not in state.unreadable


def reports(state: FleetState, replica: ReplicaId) -> tuple[Held[ShardStatus], ...]:
    """Every shard document that names the replica and still says something."""
    return tuple(
        held
        for held in state.shards_of(replica)
        if not is_void(held, state.info(held.document.node))
    )


def is_untouchable(state: FleetState, replica: ReplicaDocument) -> bool:
    """Its own document, or one that an agent wrote of it, could not be read."""
    if not state.unreadable:
        return False
    own = subjects.replica(replica.model, replica.slot)
    told = (
        f"{subjects.STATE_ROOT}node.{node}.shard.{slot}"
        for node, slot in state.shards_by_replica.get(replica.id, {})
    )
    return any(subject in state.unreadable for subject in (own, *told))


def stand(
    state: FleetState,
    held: Held[ReplicaDocument],
    verdicts: dict[NodeId, Verdict],
    patience_seconds: float | None,
) -> Standing:
    """A replica as the pass finds it."""
    replica = held.document
    nodes = [plan.node for plan in replica.shards]
    return Standing(
        document=replica,
        event=held.event,
        untouchable=is_untouchable(state, replica),
        shards=reports(state, replica.id),
        alive=all(_verdict(verdicts, node).condition == "alive" for node in nodes),
        lost=any(
            is_removed(state, node) or _verdict(verdicts, node).lost_for(patience_seconds)
            for node in nodes
        ),
    )


def _verdict(verdicts: dict[NodeId, Verdict], node: NodeId) -> Verdict:
    return verdicts.get(node, Verdict(None, None))


def lost_by(standings: Iterable[Standing], verdicts: dict[NodeId, Verdict]) -> EventId | None:
    """The verdict that lost the first of these replicas."""
    for standing in standings:
        for plan in standing.document.shards:
            verdict = _verdict(verdicts, plan.node)
            if verdict.condition == "lost":
                return verdict.event
    return None
