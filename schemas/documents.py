"""State documents: the whole value of one entity, one struct a subject family.

Fields may be added with a default; a new meaning is a new version with an upcaster.
"""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from schemas.ids import (
    ControlId,
    EngineName,
    EventId,
    GpuUuid,
    LogId,
    ModelName,
    NodeId,
    ReplicaId,
    RouterId,
)

CardHealth = Literal["healthy", "degraded", "unhealthy", "unknown"]
NodeCondition = Literal["alive", "unreachable", "lost"]
ShardPhase = Literal["starting", "loading", "ready", "failed", "stopping", "stopped"]
ReplicaGoal = Literal["run", "drain", "stop"]
ShardGoal = Literal["run", "drain"]
EngineKind = Literal["vllm", "llamacpp", "sglang"]
Task = Literal["generate", "embed"]

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
Time = Annotated[str, Meta(pattern=f"^{_DAY}T{_CLOCK}Z$")]
"""UTC, RFC 3339. Where it is read as a time; what is only shown need not be one."""
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Amount = Annotated[float, Meta(ge=0)]


class Document(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Common habits of all state documents."""


class Gone(Document, frozen=True, gc=False, kw_only=True, omit_defaults=False):
    """The entity of this subject is no more; the subject may be used again once nothing names it."""

    gone: Literal[True] = True
    id: str


class Genesis(Document, frozen=True, gc=False, kw_only=True):
    """First document of a log."""

    log_id: LogId
    format: int
    parent: LogId | None = None
    """The log that this one replaced after damage."""
    ancestors: tuple[LogId, ...] = ()
    """Every earlier log, newest first, at most 16: who slept through two recoveries moves over too."""

    def succeeds(self, log: LogId) -> bool:
        """Whether who followed `log` goes on with this one."""
        return log == self.parent or log in self.ancestors


class CatalogPointer(Document, frozen=True, gc=False, kw_only=True):
    """Which revision is current. One event of this subject is one swap."""

    revision: Natural
    hash: str
    author: str
    reason: str = ""


class CatalogRevision(Document, frozen=True, gc=False, kw_only=True):
    """An immutable catalog. `source` becomes a Catalog only through `services.fleet.catalog`."""

    revision: Natural
    hash: str
    source: Raw


class Card(Document, frozen=True, gc=False, kw_only=True):
    """One GPU."""

    uuid: GpuUuid
    gpu_class: str
    memory_bytes: Natural
    foreign_bytes: Natural = 0
    health: CardHealth = "healthy"
    reason: str = ""


class EngineOnNode(Document, frozen=True, gc=False, kw_only=True):
    """A named engine environment as the agent found it."""

    name: EngineName
    kind: EngineKind
    version: str = ""
    """Empty: could not be told."""


class ProcessIdentity(Document, frozen=True, gc=False, kw_only=True):
    """What tells a process from a stranger that got its pid later."""

    boot_id: str
    pid: int
    start_ticks: int
    """Field 22 of /proc/<pid>/stat."""


class Session(Document, frozen=True, gc=False, kw_only=True):
    """An engine session of ours that a starting agent found alive."""

    replica: ReplicaId
    attempt: int
    process: ProcessIdentity


class NodeInfo(Document, frozen=True, gc=False, kw_only=True):
    """A node as its agent describes it, written at the agent's start and on change."""

    node: NodeId
    machine_id: str
    boot_id: str
    incarnation: str
    """One start of the agent process."""
    agent_version: str
    address: str
    """Host where the node's engines answer routers."""
    fabric_address: str = ""
    admin_address: str
    """host:port of the agent's admin listener, for direct probes."""
    ports: tuple[Port, Port]
    """First and last port that engines may be given."""
    cards: tuple[Card, ...] = ()
    cards_fault: str = ""
    """Not empty: the cards could not be read, and why."""
    fabric: str = ""
    labels: dict[str, str] = {}
    cores: Amount
    memory_bytes: Natural
    engines: tuple[EngineOnNode, ...] = ()
    sessions: tuple[Session, ...] = ()
    engines_survive_agent: bool = True


class LastError(Document, frozen=True, gc=False, kw_only=True):
    """Why a shard failed. Stands in every report from the first failure to the next good start."""

    failure: str
    """A failure class: `port_in_use`, `model_not_found`, `killed`, …"""
    message: str
    """The decisive line, control characters escaped, secrets struck out."""
    exit_code: int | None = None
    """Negative: killed by that signal. None: still running, or not known."""
    permanent: bool = False
    log: str = ""
    """At most 4 KiB of engine log around the cause."""


class Progress(Document, frozen=True, gc=False, kw_only=True):
    """How far a load has come."""

    step: str
    percent: float | None = None


class ShardStatus(Document, frozen=True, gc=False, kw_only=True):
    """One shard as its agent sees it."""

    node: NodeId
    replica: ReplicaId
    model: ModelName
    rank: Natural
    phase: ShardPhase
    attempt: Positive
    run: Natural
    """Counts the agent's own restarts within an attempt, from 0."""
    gpus: tuple[GpuUuid, ...] = ()
    process: ProcessIdentity | None = None
    port: Port = 0
    rendezvous_port: Port = 0
    engine: EngineName
    engine_version: str = ""
    since: str
    """When this phase began, by the agent's clock; for display."""
    progress: Progress | None = None
    failures: int = 0
    """Failures in a row, back to 0 after 10 min healthy."""
    retry_at: str | None = None
    error: LastError | None = None
    exit_code: int | None = None
    """How the engine of this run ended; negative: killed by that signal."""
    incarnation: str
    """The agent that wrote this."""


class NodeVerdict(Document, frozen=True, gc=False, kw_only=True):
    """What control holds of a node's silence."""

    node: NodeId
    condition: NodeCondition
    since: Time
    lost_patience_seconds: float | None = None
    """The longest patience that this silence has outlasted: models with more still wait."""
    silent_since: Time | None = None
    """When it was last heard, as far as it could have been heard since, by control's clock; None: it
    is alive."""


class ShardPlan(Document, frozen=True, gc=False, kw_only=True):
    """Where one shard of a replica runs."""

    node: NodeId
    rank: Natural
    gpus: tuple[GpuUuid, ...] = ()
    port: Port
    rendezvous_port: Port = 0
    cores: Amount = 0.0
    """Held of the node's cores; 0 where cards are held."""
    memory_bytes: Natural = 0
    """Held of the node's memory; 0 where cards are held."""


class ReplicaDocument(Document, frozen=True, gc=False, kw_only=True):
    """One running copy of a model, as control decided it. What really runs is in the shard documents."""

    id: ReplicaId
    model: ModelName
    slot: Natural
    generation: Natural
    revision: Natural
    """Catalog revision that it was placed for."""
    profile_hash: str
    attempt: Positive
    shards: Annotated[tuple[ShardPlan, ...], Meta(min_length=1)]
    goal: ReplicaGoal
    since: Time
    """When this goal was set or this attempt began, by control's clock."""
    reason: str = ""
    deadline: Time | None = None
    """Drain ends here at the latest, by control's clock; None with goal drain: never by time."""
    taken_ports: Natural = 0
    """Ports of this generation that its node found in a stranger's hands."""


class SecretRef(Document, frozen=True, gc=False, kw_only=True):
    """A value that only the node knows; `secret` is the name under which it is resolved there."""

    secret: str


class RestartPolicy(Document, frozen=True, gc=False, kw_only=True):
    """How the agent restarts a single-node shard. Seconds."""

    first_seconds: float = 1.0
    longest_seconds: float = 300.0
    healthy_seconds: float = 600.0
    """Failures in a row are forgotten after this time healthy."""


class LaunchSpec(Document, frozen=True, gc=False, kw_only=True):
    """All that an agent needs to start one shard; secrets by reference."""

    engine: EngineName
    kind: EngineKind
    version: str = ""
    """The catalog's pin; empty: any."""
    source: str
    served_name: ModelName
    task: Task = "generate"
    gpus: tuple[GpuUuid, ...] = ()
    cores: float = 0.0
    nodes: int = 1
    rank: int = 0
    host: str
    port: int
    head_address: str = ""
    rendezvous_port: int = 0
    args: dict[str, str] = {}
    env: dict[str, str | SecretRef] = {}
    metrics: dict[str, str] | None = None
    """None: the adapter's own map. See `services.fleet.engine_metrics`."""
    stall_seconds: float | None = 600.0
    """A load without a new phase, percent or byte for so long is killed; None: never."""
    restart: RestartPolicy | None = RestartPolicy()
    """None: only control restarts it (a gang's member)."""


class AssignedShard(Document, frozen=True, gc=False, kw_only=True):
    """One shard that a node should run."""

    replica: ReplicaId
    model: ModelName
    attempt: Positive
    goal: ShardGoal
    grace_seconds: float | None = None
    """With goal drain: stop so long after first obeying it, by the agent's own measure, even when
    busy; None: wait for ever. A length of time, since no two machines' clocks agree."""
    launch: LaunchSpec
    cause: EventId | None = None
    """The replica event that put it here; the agent's reports name it as their cause."""


class Assignment(Document, frozen=True, gc=False, kw_only=True):
    """The full set of shards of a node. Absent = stop."""

    node: NodeId
    shards: tuple[AssignedShard, ...]


class Endpoint(Document, frozen=True, gc=False, kw_only=True):
    """A ready replica's address."""

    replica: ReplicaId
    incarnation: str
    """attempt.run: another start of the engine is another incarnation."""
    address: str
    """host:port of rank 0."""
    node: NodeId
    kind: EngineKind
    metrics: dict[str, str] | None = None
    unrouted: bool = False
    """Takes no new request; what it has may finish."""
    last_choice: bool = False
    """Its node is unreachable: chosen only when no other can serve."""


class EndpointShard(Document, frozen=True, gc=False, kw_only=True):
    """Up to 500 endpoints of a model, cut by stable hash. Shard 0 says how many shards there are."""

    model: ModelName
    shard: Natural
    shards: Natural
    endpoints: tuple[Endpoint, ...]


class NodeRefusal(Document, frozen=True, gc=False, kw_only=True):
    """Nodes that failed the same predicate first."""

    reason: str
    nodes: int
    detail: str = ""


class PlacementVerdict(Document, frozen=True, gc=False, kw_only=True):
    """The model's last placement decision; written when verdict or main reason changes."""

    model: ModelName
    verdict: Literal["placed", "unplaceable"]
    wanted: int
    placed: int
    refusals: tuple[NodeRefusal, ...] = ()
    rules: int
    """Version of the placer's rules."""
    seen: int
    """LOG sequence at which it was decided."""


class ControlEpoch(Document, frozen=True, gc=False, kw_only=True):
    """Who leads. The LOG sequence of this document is the fence of every batch."""

    holder: ControlId
    incarnation: str
    address: str = ""
    """host:port of the holder's admin listener."""
    since: str = ""
    """When it took the lead: a claim that renews its own keeps this."""


class ControlBrake(Document, frozen=True, gc=False, kw_only=True):
    """The mass-silence brake (`services.control.deciding.brake`). Written when it changes."""

    engaged: bool
    since: Time
    """When it was engaged, by control's clock. Once it is off, when it had been."""
    silent: int
    """Nodes that had fallen silent when it was engaged, `nodes` the fleet's number then."""
    nodes: int
    calm_since: Time | None = None
    """While engaged: since when less than a quarter has been silent."""
    released_by: EventId | None = None
    """The command that ended it, and pardons every silence that had begun by then; None: it is
    engaged, or ended by itself."""


class ModelUse(Document, frozen=True, gc=False, kw_only=True):
    """When each replica of a model was last acquired by one router."""

    model: ModelName
    last_used: dict[ReplicaId, Time]


class RouterReport(Document, frozen=True, gc=False, kw_only=True):
    """One router worker's idle map and what it cannot reach; cut by model into chunks."""

    router: RouterId
    incarnation: str
    since: Time
    """When it began to watch: a replica that is absent from the map was unused since then."""
    chunk: Natural
    chunks: Natural
    use: tuple[ModelUse, ...] = ()
    unreachable: dict[ReplicaId, str] = {}


class CommandRecord(Document, frozen=True, gc=False, kw_only=True):
    """A happening: what an operator asked for and what came of it. Refused ones too."""

    verb: str
    actor: str
    source: str
    """Address that the request came from."""
    reason: str = ""
    target: str = ""
    outcome: Literal["accepted", "refused"]
    detail: str = ""
    asked: str = ""
    """The mark of who asked, by which it is found if the answer is lost."""
