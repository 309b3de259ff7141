"""One pass over the fleet: what it reads, and what it has decided so far. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from schemas.catalog import Model
from schemas.documents import AssignedShard, LaunchSpec, ReplicaDocument, ShardPlan
from schemas.ids import EventId, ModelName, NodeId, ReplicaId
from services.control.deciding.drafts import Drafts
from services.control.deciding.launch import launch
from services.control.deciding.silence import Silence
from services.fleet.catalog import CatalogFaults, from_json
from services.fleet.standing import NEVER_JUDGED, Standing, Verdict
from services.fleet.state import FleetState

Told = dict[ReplicaId, list[tuple[NodeId, AssignedShard]]]
"""What nodes were told when the pass began, by replica."""


class Turn(Struct, kw_only=True):
    """State is read only. Everything the pass changes, it changes here."""

    state: FleetState
    models: Mapping[ModelName, Model] | None
    """None: the catalog in the log is refused by this version, so replicas are left as they are."""
    silence: Silence
    now: float
    """Seconds since 1970, the fleet's clock."""
    drafts: Drafts
    verdicts: dict[NodeId, Verdict]
    standings: dict[ModelName, list[Standing]]
    """By model, in the order of slots."""
    told: Told
    past: dict[int, Mapping[ModelName, Model]]
    """Models of earlier revisions that this pass had to look up."""
    braked: bool = False
    """The mass-silence brake is on: nothing is given up, nothing rebuilt."""
    revision: int
    """Of the catalog that `models` are of; 0: none."""
    adopted: dict[ReplicaId, EventId]
    """The agents' reports by which this pass took replicas over (`adopting.py`)."""
    withheld: set[NodeId]
    """Nodes that are told nothing: what they run cannot be judged."""
    waits: list[float]
    """Seconds from now after which another pass may decide something else."""

    @property
    def everyone(self) -> Iterable[Standing]:
        """All replicas that are left, by model and slot."""
        for _, standings in sorted(self.standings.items()):
            yield from (standing for standing in standings if not standing.gone)

    def model(self, name: ModelName) -> Model | None:
        return None if self.models is None else self.models.get(name)

    @property
    def pointer(self) -> EventId | None:
        """The swap that made the catalog current."""
        held = self.state.catalog.get(())
        return None if held is None else held.event

    def told_of(self, replica: ReplicaDocument, plan: ShardPlan) -> AssignedShard | None:
        """What the node was told of this shard in this attempt."""
        for node, shard in self.told.get(replica.id, ()):
            if node == plan.node and shard.attempt == replica.attempt:
                return shard
        return None

    def launch_of(self, replica: ReplicaDocument, plan: ShardPlan) -> LaunchSpec | None:
        """How the shard is started: as its node was told already, else by the catalog."""
        known = self.told_of(replica, plan)
        if known is not None:
            return known.launch
        model = self.model_as_placed(replica)
        return None if model is None else launch(self.state, model, replica, plan)

    def verdict(self, node: NodeId) -> Verdict:
        return self.verdicts.get(node, NEVER_JUDGED)

    def model_as_placed(self, replica: ReplicaDocument) -> Model | None:
        """The model as it was in the revision that the replica was placed for, if that is kept."""
        current = self.model(replica.model)
        if current is not None and current.profile_hash == replica.profile_hash:
            return current
        if replica.revision not in self.past:
            self.past[replica.revision] = self._revision(replica.revision)
        return self.past[replica.revision].get(replica.model)

    def _revision(self, revision: int) -> Mapping[ModelName, Model]:
        for held in self.state.revisions.values():
            if held.document.revision == revision:
                made = from_json(held.document.source)
                return {} if isinstance(made, CatalogFaults) else made.models
        return {}
