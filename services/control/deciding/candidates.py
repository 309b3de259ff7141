"""What the placer is asked about, and its answer when it is yes. Pure."""

from msgspec import Struct

from schemas.documents import Card, EngineOnNode, NodeCondition
from schemas.ids import GpuUuid, ModelName, NodeId


class Candidate(Struct, kw_only=True):
    """One node as the placer sees it. `Room` keeps it current within a pass."""

    node: NodeId
    condition: NodeCondition = "alive"
    unread: str = ""
    """The subject whose last message could not be read, so that the node gets nothing new."""
    fabric: str = ""
    engines: tuple[EngineOnNode, ...] = ()
    cards: tuple[Card, ...] = ()
    held: set[GpuUuid]
    millicores_free: int
    """Whole numbers, so that sums do not depend on their order."""
    memory_free: int
    ports: tuple[int, int]
    ports_used: set[int]
    models: dict[ModelName, int]
    """Replicas there by model."""
    cpu_replicas: int = 0
    starts: int = 0
    """Replicas there that are not ready yet."""


class Shape(Struct, frozen=True):
    """One shard's place on a node."""

    node: NodeId
    gpus: tuple[GpuUuid, ...]
    port: int
    rendezvous_port: int = 0


class Placed(Struct, frozen=True):
    """Where the replica goes, in rank order."""

    shards: tuple[Shape, ...]


class Fits(Struct, frozen=True):
    """The node can take the shard. Lower `order` is better."""

    shape: Shape
    order: tuple[int, ...]


def millicores(cores: float) -> int:
    """Thousandths of a core."""
    return round(cores * 1000)
