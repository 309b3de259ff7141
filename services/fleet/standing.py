"""How each replica and node stands, for decisions and for tables alike.

Pure. Control's pass reads the standings once and then changes them as it decides; views read them and
show them. So what is shown is what was decided by.

A shard document is void when its node was removed, or when a newer incarnation of its agent described
the node since and did not find that session alive: it says nothing any more, and holds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from schemas import subjects
from schemas.catalog import Model
from schemas.documents import NodeCondition, NodeVerdict, ReplicaDocument, ShardStatus
from schemas.ids import EventId, ModelName, NodeId, ReplicaId
from services.fleet.state import FleetState, Held
from services.fleet.unread import is_unknown_node, replicas_as_told

DEFAULT_PATIENCE_SECONDS = 60.0
"""For a node that runs nothing, and for models that the catalog no longer has."""


class Verdict(Struct, frozen=True):
    """A node's verdict, and the event that gave it. No document: never judged, so alive."""

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


Verdicts = Mapping[NodeId, Verdict]


class Standing(Struct, kw_only=True):
    """One replica. In a pass, `document`, `event` and `gone` follow what the pass decides."""

    document: ReplicaDocument
    event: EventId
    untouchable: bool
    """Something of it could not be read: it is counted, and left as it is until that is mended."""
    shards: tuple[Held[ShardStatus], ...]
    """What agents say of it, in any attempt, void reports left out."""
    alive: bool
    """Every node of it is described and alive."""
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
    def counts(self) -> bool:
        """Towards the wanted number: it is to run, and on no lost node."""
        return self.document.goal == "run" and not self.gone and not self.lost

    @property
    def running(self) -> bool:
        """An agent has something of it left."""
        return any(held.document.phase != "stopped" for held in self.shards)

    @property
    def ended(self) -> bool:
        """Its agents stopped all of the current attempt, and will not start it again."""
        return all(held is not None and held.document.phase == "stopped" for held in self.current)


def patience_of(model: Model | None) -> float | None:
    """Silence in seconds after which a node is lost for the model; None: never."""
    return DEFAULT_PATIENCE_SECONDS if model is None else model.patience_seconds


def recorded_verdict(state: FleetState, node: NodeId) -> Verdict:
    """As the log holds it."""
    held = state.verdict(node)
    return Verdict(None, None) if held is None else Verdict(held.document, held.event)


def recorded_verdicts(state: FleetState) -> Verdicts:
    """Of every node that an agent describes."""
    nodes = (held.document.node for held in state.infos.values())
    return {node: recorded_verdict(state, node) for node in nodes}


def is_removed(state: FleetState, node: NodeId) -> bool:
    """No agent describes the node any more."""
    return state.info(node) is None and subjects.node_info(node) not in state.unreadable


def is_void(state: FleetState, held: Held[ShardStatus]) -> bool:
    """Nobody stands behind it any more: the node was removed, or its agent found no such session."""
    shard = held.document
    info = state.info(shard.node)
    if info is None:
        return is_removed(state, shard.node)
    if held.sequence > info.sequence or shard.incarnation == info.document.incarnation:
        return False
    found = {(session.replica, session.attempt) for session in info.document.sessions}
    return (shard.replica, shard.attempt) not in found


def holding(state: FleetState) -> Iterator[Held[ShardStatus]]:
    """Shard documents that hold their cards and port, whoever decided them."""
    for held in state.shards.values():
        if held.document.phase != "stopped" and not is_void(state, held):
            yield held


def reports(state: FleetState, replica: ReplicaId) -> tuple[Held[ShardStatus], ...]:
    """Every shard document that names the replica and still says something."""
    return tuple(held for held in state.shards_of(replica) if not is_void(state, held))


def is_untouchable(state: FleetState, replica: ReplicaDocument) -> bool:
    """Its own document, or one that an agent wrote of it, could not be read, or may have been lost."""
    if not state.unreadable:
        return False
    if any(is_unknown_node(state, plan.node) for plan in replica.shards):
        return True
    own = subjects.replica(replica.model, replica.slot)
    told = (
        f"{subjects.STATE_ROOT}node.{node}.shard.{slot}"
        for node, slot in state.shards_by_replica.get(replica.id, {})
    )
    return any(subject in state.unreadable for subject in (own, *told))


def stand(
    state: FleetState,
    held: Held[ReplicaDocument],
    verdicts: Verdicts,
    patience_seconds: float | None,
) -> Standing:
    """One replica as the state and these verdicts have it."""
    replica = held.document
    nodes = [plan.node for plan in replica.shards]
    removed = any(is_removed(state, node) for node in nodes)
    return Standing(
        document=replica,
        event=held.event,
        untouchable=is_untouchable(state, replica),
        shards=reports(state, replica.id),
        alive=not removed and all(_of(verdicts, node).condition == "alive" for node in nodes),
        lost=removed or any(_of(verdicts, node).lost_for(patience_seconds) for node in nodes),
    )


def _of(verdicts: Verdicts, node: NodeId) -> Verdict:
    return verdicts.get(node, Verdict(None, None))


def stand_all(
    state: FleetState, models: Mapping[ModelName, Model], verdicts: Verdicts
) -> dict[ModelName, list[Standing]]:
    """Every replica by model, in the order of slots."""
    found: dict[ModelName, list[Standing]] = {}
    for held in sorted(
        [*state.replicas.values(), *replicas_as_told(state, models)],
        key=lambda held: (held.document.model, held.document.slot),
    ):
        name = held.document.model
        standing = stand(state, held, verdicts, patience_of(models.get(name)))
        found.setdefault(name, []).append(standing)
    return found


def lost_by(standings: Iterable[Standing], verdicts: Verdicts) -> EventId | None:
    """The verdict that lost the first of these replicas."""
    for standing in standings:
        for plan in standing.document.shards:
            verdict = _of(verdicts, plan.node)
            if verdict.condition == "lost":
                return verdict.event
    return None
