"""What each node has left in this pass: the state's holders, and what the pass itself gave and took.

Pure. A card, port, core or byte is held by every replica document that is not gone, and cards and
ports also by every shard document short of `stopped`, whoever decided it (an orphan, or a replica
given up on a lost node): a card that nobody names is free.
"""

from collections.abc import Callable, Iterable, Mapping

from schemas.documents import NodeInfo, ReplicaDocument, ShardStatus
from schemas.ids import NodeId, ReplicaId
from services.control.deciding.candidates import Candidate, millicores
from services.fleet.standing import Standing, Verdicts, reports
from services.fleet.state import FleetState, Held
from services.fleet.unread import takes_nothing


class Room:
    """The candidates of one pass. `take` makes the next choice see this one."""

    def __init__(
        self, state: FleetState, verdicts: Verdicts, standings: Callable[[], Iterable[Standing]]
    ) -> None:
        """All replicas, those that this pass ended too: what agents report of them holds its place.

        `standings` is asked when somebody first looks: most passes place nothing."""
        self._state = state
        self._verdicts = verdicts
        self._standings = standings
        self._looked_up: dict[NodeId, Candidate] | None = None

    @property
    def _candidates(self) -> dict[NodeId, Candidate]:
        if self._looked_up is None:
            self._looked_up = _as_it_stands(self._state, self._verdicts, self._standings())
        return self._looked_up

    @property
    def candidates(self) -> list[Candidate]:
        """Every node that an agent described."""
        return list(self._candidates.values())

    def candidate(self, node: NodeId) -> Candidate | None:
        return self._candidates.get(node)

    def take(self, replica: ReplicaDocument, *, starting: bool = True) -> None:
        """A replica holds what its document names."""
        _take(self._candidates, replica, starting=starting)


def _as_it_stands(
    state: FleetState, verdicts: Verdicts, standings: Iterable[Standing]
) -> dict[NodeId, Candidate]:
    found = {held.document.node: _empty(state, held, verdicts) for held in state.infos.values()}
    known: set[ReplicaId] = set()
    for standing in standings:
        known.add(standing.document.id)
        if not standing.gone:
            _take(found, standing.document, starting=not standing.serving)
        _hold(found, standing.shards)
    for replica in state.shards_by_replica.keys() - known:
        _hold(found, reports(state, replica))  # Orphans.
    return found


def _hold(candidates: Mapping[NodeId, Candidate], shards: Iterable[Held[ShardStatus]]) -> None:
    for held in shards:
        shard = held.document
        if shard.phase != "stopped" and (candidate := candidates.get(shard.node)) is not None:
            candidate.held.update(shard.gpus)
            candidate.ports_used.update({shard.port, shard.rendezvous_port} - {0})


def _empty(state: FleetState, held: Held[NodeInfo], verdicts: Verdicts) -> Candidate:
    info = held.document
    return Candidate(
        node=info.node,
        condition=verdicts[info.node].condition,
        unread=takes_nothing(state, info.node),
        fabric=info.fabric,
        engines=info.engines,
        cards=info.cards,
        held=set(),
        millicores_free=millicores(info.cores),
        memory_free=info.memory_bytes,
        ports=info.ports,
        ports_used=set(),
        models={},
    )


def _take(
    candidates: Mapping[NodeId, Candidate], replica: ReplicaDocument, *, starting: bool
) -> None:
    model = replica.model
    for plan in replica.shards:
        if (candidate := candidates.get(plan.node)) is None:
            continue
        candidate.held.update(plan.gpus)
        candidate.ports_used.add(plan.port)
        if plan.rendezvous_port:
            candidate.ports_used.add(plan.rendezvous_port)
        if plan.cores:
            candidate.millicores_free -= millicores(plan.cores)
        candidate.memory_free -= plan.memory_bytes
        candidate.models[model] = candidate.models.get(model, 0) + 1
        candidate.cpu_replicas += not plan.gpus
        candidate.starts += starting and replica.goal == "run"
