"""A fleet in memory for tests of decisions: a log, agents that do as they are told, and a clock."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import (
    AssignedShard,
    Assignment,
    Endpoint,
    Gone,
    LastError,
    NodeInfo,
    ReplicaDocument,
    ShardPhase,
    ShardStatus,
)
from schemas.ids import LogId, ModelName, NodeId, ReplicaId, RouterId, token
from services.control.deciding.drafts import Draft
from services.control.deciding.reconcile import Decision, decide
from services.control.deciding.silence import Silence
from services.fleet.state import FleetState
from tests.builders import NOW, Script, a_pointer, an_event, at


class Fleet:
    """Nodes, a catalog and a clock. `turn` decides and folds; agents report only when told to."""

    def __init__(
        self, *nodes: NodeInfo, models: Iterable[Model] = (), parent: LogId | None = None
    ) -> None:
        """`parent`: its log goes on from a lost one."""
        self.script = Script(*nodes, parent=parent)
        self.now = NOW
        self.models: Mapping[ModelName, Model] | None = {}
        self.heard: dict[NodeId, float] = {node.node: 0.0 for node in nodes}
        self.hearing = 1000.0
        self.unanswered: set[NodeId] = set()
        self.routers: dict[RouterId, int] = {}
        self.revision = 0
        self.swap(*models)

    @property
    def state(self) -> FleetState:
        return self.script.state

    def swap(self, *models: Model) -> None:
        """Another catalog becomes the current one."""
        self.revision += 1
        self.script.add(a_pointer(self.revision))
        self.models = {model.name: model for model in models}

    def silence(self) -> Silence:
        return Silence(
            hearing_seconds=self.hearing,
            nodes={node: s for node, s in self.heard.items() if s <= self.hearing},
            unanswered=frozenset(self.unanswered),
            routers=dict(self.routers),
        )

    def ask(self) -> Decision:
        """What would be decided now; nothing is written."""
        return decide(self.state, self.models, self.silence(), self.now)

    def turn(self) -> Decision:
        """Decide and write it."""
        decision = self.ask()
        self.fold(decision.drafts)
        return decision

    def fold(self, drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            sequence = len(self.script.log) + 1
            payload = an_event(
                draft.document,
                id_=draft.id,
                kind=draft.type,
                at_=codec.rfc3339(self.now),
                cause=draft.cause,
                corr=draft.corr,
            )
            self.script.log.append((sequence, draft.subject, payload))
            self.state.apply(sequence, draft.subject, payload)

    def wait(self, seconds: float, *silent: str) -> None:
        """Time passes; every node but the named ones goes on beating."""
        self.now += seconds
        for node in self.heard:
            self.heard[node] = self.heard[node] + seconds if node in silent else 0.0

    def replicas(self, model: str = "tiny") -> list[ReplicaDocument]:
        """Not gone, by slot."""
        found = [h.document for h in self.state.replicas.values() if h.document.model == model]
        return sorted(found, key=lambda replica: replica.slot)

    def nodes(self, model: str = "tiny") -> list[str]:
        """Where the model's replicas stand, by slot."""
        return [plan.node for replica in self.replicas(model) for plan in replica.shards]

    def goals(self, model: str = "tiny") -> list[str]:
        return [replica.goal for replica in self.replicas(model)]

    def assigned(self, node: str) -> dict[ReplicaId, AssignedShard]:
        held = self.state.assignment(NodeId(node))
        return {} if held is None else {shard.replica: shard for shard in held.document.shards}

    def endpoints(self, model: str = "tiny") -> dict[ReplicaId, Endpoint]:
        return {
            endpoint.replica: endpoint
            for key, held in self.state.endpoints.items()
            if key[0] == token(model)
            for endpoint in held.document.endpoints
        }

    def report(
        self,
        replica: ReplicaDocument,
        phase: ShardPhase = "ready",
        *,
        error: LastError | None = None,
        run: int = 0,
    ) -> None:
        """Every node of the replica reports its shard."""
        for plan in replica.shards:
            info = self.state.info(plan.node)
            assert info is not None
            shard = ShardStatus(
                node=plan.node,
                replica=replica.id,
                model=replica.model,
                rank=plan.rank,
                phase=phase,
                attempt=replica.attempt,
                run=run,
                gpus=plan.gpus,
                port=plan.port,
                engine=info.document.engines[0].name,
                since=at(0),
                error=error,
                incarnation=info.document.incarnation,
            )
            order = self.assigned(plan.node).get(replica.id)
            self.script.put(
                subjects.node_shard(plan.node, self._slot(plan.node, replica.id)),
                shard,
                kind=f"shard.{phase}",
                cause=None if order is None else order.cause,
            )

    def _slot(self, node: NodeId, replica: ReplicaId) -> int:
        """The slot that names the replica, else the lowest unused one."""
        used = {
            int(key[1]): held.document.replica
            for key, held in self.state.shards.items()
            if key[0] == token(node)
        }
        for slot, name in used.items():
            if name == replica:
                return slot
        return min(set(range(len(used) + 1)) - used.keys())

    def ready(self, model: str = "tiny") -> None:
        """Every replica of the model that is to run becomes ready, and control has seen it."""
        for replica in self.replicas(model):
            if replica.goal == "run":
                self.report(replica)
        self.turn()

    def obey(self, *silent: str) -> None:
        """Every agent but the named ones does all that its assignment says, and reports it."""
        for held in list(self.state.shards.values()):
            shard = held.document
            if shard.node not in silent and shard.replica not in self.assigned(shard.node):
                self._end(shard)
        for assignment in list(self.state.assignments.values()):
            if assignment.document.node not in silent:
                self._run(assignment.document)

    def _end(self, shard: ShardStatus) -> None:
        """Absent from the assignment: stopped, and once that is written, the slot is given free."""
        subject = subjects.node_shard(shard.node, self._slot(shard.node, shard.replica))
        if shard.phase != "stopped":
            self.script.put(subject, replace(shard, phase="stopped"))
        else:
            self.script.put(subject, Gone(id=shard.replica))

    def _run(self, assignment: Assignment) -> None:
        for shard in assignment.shards:
            held = self.state.replica(shard.replica)
            if held is None:
                continue
            known = [h.document for h in self.state.shards_of(shard.replica)]
            if any(s.node == assignment.node and s.phase == "stopped" for s in known):
                continue  # What was reported stopped is never started again.
            self.report(held.document, "stopped" if shard.goal == "drain" else "ready")
