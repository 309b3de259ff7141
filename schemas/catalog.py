"""What users ask for: models and their profiles. Values only.

A whole Catalog is made by `services.fleet.catalog` alone, which checks all of this together.
"""

from msgspec import Struct

from schemas.documents import EngineKind, SecretRef, Task
from schemas.ids import EngineName, ModelName


class EngineEnvironment(Struct, frozen=True, kw_only=True):
    """A named engine environment; the command itself stands in the agent's configuration."""

    name: EngineName
    kind: EngineKind
    version: str = ""
    """Pin; empty: any."""
    metrics: dict[str, str] | None = None
    """None: the adapter's own map. A complete statement otherwise (`services.fleet.engine_metrics`)."""


class GpuNeed(Struct, frozen=True, kw_only=True):
    """Cards on each node of a replica."""

    gpu_class: str
    count: int
    memory_bytes: int | None = None
    """Free memory wanted on each card; None: all of the card, less the reserve."""


class CpuNeed(Struct, frozen=True, kw_only=True):
    """What a replica without cards takes of a node."""

    cores: float = 1.0
    memory_bytes: int = 0


class Profile(Struct, frozen=True, kw_only=True):
    """What one replica is: a change of any of this is another profile and rolls the model."""

    engine: EngineEnvironment
    source: str
    """A path on the node, or a hub id."""
    task: Task = "generate"
    gpu: GpuNeed | None = None
    cpu: CpuNeed | None = None
    """Set exactly where `gpu` is not."""
    nodes: int = 1
    args: dict[str, str] = {}
    env: dict[str, str | SecretRef] = {}


class Model(Struct, frozen=True, kw_only=True):
    """One entry of the catalog. Durations in seconds; None = off."""

    name: ModelName
    profile: Profile
    profile_hash: str
    replicas: int = 1
    """0: listed, not running."""
    min_ready: int | None = None
    """None: all; all but one where no surge fits."""
    aliases: tuple[ModelName, ...] = ()
    hidden: bool = False
    patience_seconds: float | None = 60.0
    """Silence of a node after which its replicas are rebuilt elsewhere; None: never."""
    drain_grace_seconds: float | None = 600.0
    """A drain ends here at the latest; 0: at once; None: never by time."""
    load_stall_seconds: float | None = 600.0
    """A load without progress for so long is killed; None: never."""
