"""How each replica and node stands, for decisions and for tables alike.

Pure. Control's pass reads the standings once and then changes them as it decides; views read them and
show them. So what is shown is what was decided by.

A shard document is void when its node was removed, or when a newer incarnation of its agent described
the node since and did not find that session alive: it says nothing any more, and holds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct

from schemas import subjects
from schemas.catalog import Model
from schemas.documents import (
    NodeCondition,
    NodeVerdict,
    ReplicaDocument,
    ShardPhase,
    ShardPlan,
    ShardStatus,
)
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
"""Of every node that an agent describes."""
NEVER_JUDGED = Verdict(None, None)


class Standing(Struct, kw_only=True, gc=False):
    """One replica. In a pass, it follows what the pass decides: by `becomes`, and by `gone`.

    What is asked of every replica again and again is worked out once.
    """

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
    current: tuple[Held[ShardStatus] | None, ...] = ()
    """The report of each planned shard in the current attempt, in rank order."""
    serving: bool = False
    """Every shard of the current attempt is ready, as far as the agents have said."""

    def __post_init__(self) -> None:
        self.current = _current(self.document, self.shards)
        self.serving = _all_in(self.current, "ready")

    def becomes(self, document: ReplicaDocument, event: EventId) -> None:
        """The pass writes another document of it."""
        self.document, self.event = document, event
        self.__post_init__()

    @property
    def id(self) -> ReplicaId:
        return self.document.id

    @property
    def head(self) -> Held[ShardStatus] | None:
        """The report of rank 0, which serves HTTP."""
        return self.current[0]

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
        return _all_in(self.current, "stopped")


def _current(
    replica: ReplicaDocument, shards: tuple[Held[ShardStatus], ...]
) -> tuple[Held[ShardStatus] | None, ...]:
    if len(shards) == len(replica.shards) == 1 and _is_of(shards[0], replica, replica.shards[0]):
        return shards  # Nearly always.
    found: list[Held[ShardStatus] | None] = []
    for plan in replica.shards:
        of_plan = [held for held in shards if _is_of(held, replica, plan)]
        found.append(of_plan[-1] if of_plan else None)
    return tuple(found)


def _is_of(held: Held[ShardStatus], replica: ReplicaDocument, plan: ShardPlan) -> bool:
    shard = held.document
    return shard.attempt == replica.attempt and shard.node == plan.node and shard.rank == plan.rank


def _all_in(shards: tuple[Held[ShardStatus] | None, ...], phase: ShardPhase) -> bool:
    """Every planned shard was reported in this phase."""
    for held in shards:  # noqa: SIM110 - a loop: this is asked of every replica in every pass.
        if held is None or held.document.phase != phase:
            return False
    return True


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
    if state.info(node) is not None:
        return False
    return not state.is_set_aside(subjects.node_info(node))


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


def holding(state: FleetState, only: NodeId | None = None) -> Iterator[Held[ShardStatus]]:
    """Shard documents, or those of one node, that hold their cards and port, whoever decided them."""
    for held in state.shards.values():
        if only is not None and held.document.node != only:
            continue
        if held.document.phase != "stopped" and not is_void(state, held):
            yield held


def reports(state: FleetState, replica: ReplicaId) -> tuple[Held[ShardStatus], ...]:
    """Every shard document that names the replica and still says something."""
    shards = state.shards_of(replica)
    for void in shards:
        if is_void(state, void):  # Seldom: else there is nothing to make anew.
            return tuple([held for held in shards if not is_void(state, held)])
    return shards


def is_untouchable(state: FleetState, replica: ReplicaDocument) -> bool:
    """Its own document, or one that an agent wrote of it, could not be read, or may have been lost."""
    if any(is_unknown_node(state, plan.node) for plan in replica.shards):
        return True
    own = subjects.replica(replica.model, replica.slot)
    told = (
        f"{subjects.STATE_ROOT}node.{node}.shard.{slot}"
        for node, slot in state.shards_by_replica.get(replica.id, ())
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
    alive, lost = True, False
    for plan in replica.shards:
        verdict = verdicts.get(plan.node)
        if verdict is None:  # Nobody describes the node, or not in a form that can be read.
            if is_removed(state, plan.node):
                alive, lost = False, True
        elif verdict.condition != "alive":
            alive = False
            lost = lost or verdict.lost_for(patience_seconds)
    return Standing(
        document=replica,
        event=held.event,
        untouchable=bool(state.unreadable or state.unread_of_node)
        and is_untouchable(state, replica),
        shards=reports(state, replica.id),
        alive=alive,
        lost=lost,
    )


def _of(verdicts: Verdicts, node: NodeId) -> Verdict:
    return verdicts.get(node, NEVER_JUDGED)


def stand_all(
    state: FleetState,
    models: Mapping[ModelName, Model],
    verdicts: Verdicts,
    only: ModelName | None = None,
) -> dict[ModelName, list[Standing]]:
    """Every replica, or those of one model, by model, in the order of slots."""
    by_model: dict[ModelName, list[Held[ReplicaDocument]]] = {}
    for held in chain(state.replicas.values(), replicas_as_told(state, models)):
        if only is not None and held.document.model != only:
            continue
        by_model.setdefault(held.document.model, []).append(held)
    found: dict[ModelName, list[Standing]] = {}
    for name, replicas in sorted(by_model.items()):
        replicas.sort(key=_slot)
        patience = patience_of(models.get(name))
        found[name] = [stand(state, held, verdicts, patience) for held in replicas]
    return found


def _slot(held: Held[ReplicaDocument]) -> int:
    return held.document.slot


def lost_by(standings: Iterable[Standing], verdicts: Verdicts) -> EventId | None:
    """The verdict that lost the first of these replicas."""
    for standing in standings:
        for plan in standing.document.shards:
            verdict = _of(verdicts, plan.node)
            if verdict.condition == "lost":
                return verdict.event
    return None
