"""The management API: its frames, and its routes as a table with roles.

Served by control on the admin listener; the command line's client and the API's documentation come
from the same table. Every answer is framed `{kind, apiVersion, asOfSeq, …}`.
"""

from typing import Literal

from msgspec import Raw, Struct

from schemas.brake import BrakeRow, BrakeView, ReleaseBrake
from schemas.documents import CardHealth, LastError, NodeCondition, NodeRefusal, Progress
from schemas.following import AgentsFollowing, ControlRow, RouterRow
from schemas.frames import Accepted, Frame, Role
from schemas.history import CatalogDiff, CatalogHistory, EventList, RollbackCatalog, Why
from schemas.ids import EngineName, GpuUuid, ModelName, NodeId, ReplicaId, RouterId
from schemas.recovery import BadDocuments, Damage, Mend, Recover, Recovery
from schemas.texts import FileName, Prune, Reason

LONGEST_WORD = 256
"""Characters of one name in a request's path, and of one value in its query."""

ASKED_HEADER = "Flotilla-Asked"
"""Of a change: the caller's own mark of it, kept in its record; 16 to 64 of 0-9 and a-f."""
COMMAND_SECONDS = 30.0
"""How long control lets a change wait for the log; an election in a cluster of servers takes up to 10."""
CHANGE_SECONDS = COMMAND_SECONDS + 15.0
"""How long who asked for a change waits for the answer: longer, so that control's own words are heard."""

ReplicaPhase = Literal[
    "placed", "starting", "loading", "ready", "draining", "stopping", "failed", "gone"
]
ModelCondition = Literal[
    "ready", "degraded", "starting", "pending", "failed", "stopped", "draining"
]


class CardRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU in tables."""

    uuid: GpuUuid
    gpu_class: str
    health: CardHealth
    reason: str = ""
    replica: ReplicaId | None = None
    """Who holds it."""


class NodeRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One node in tables."""

    node: NodeId
    condition: NodeCondition
    condition_since: str = ""
    address: str
    fabric: str = ""
    cores: float
    memory_bytes: int
    cards: tuple[CardRow, ...] = ()
    engines: dict[EngineName, str] = {}
    """Version by engine environment; empty: could not be told."""
    replicas: int = 0
    agent_version: str = ""
    engines_survive_agent: bool = True
    cards_fault: str = ""
    """Not empty: its cards could not be read, and why."""
    damaged: str = ""
    """Not empty: its agent acts on no assignment, and why."""


class ShardRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One shard of a replica in tables."""

    node: NodeId
    rank: int
    gpus: tuple[GpuUuid, ...] = ()
    port: int
    phase: str
    run: int = 0
    failures: int = 0
    retry_at: str | None = None
    progress: Progress | None = None
    error: LastError | None = None
    engine_version: str = ""


class ReplicaRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica in tables."""

    replica: ReplicaId
    model: ModelName
    phase: ReplicaPhase
    goal: str
    revision: int
    attempt: int
    since: str
    shards: tuple[ShardRow, ...]
    address: str = ""
    routed: bool = False
    """Routers may choose it for new requests."""
    idle_seconds: float = -1.0
    """Negative: unknown, which is not idle."""
    idle_at_least: bool = False
    """True: watched for so long without any use; the last use is older, or there was none."""
    reason: str = ""


class ModelRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One model in tables."""

    model: ModelName
    condition: ModelCondition
    engine: EngineName
    wanted: int
    ready: int
    replicas: int
    aliases: tuple[ModelName, ...] = ()
    hidden: bool = False
    reason: str = ""


class EndpointRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One endpoint as one router sees it."""

    replica: ReplicaId
    model: ModelName
    incarnation: str
    address: str
    node: NodeId
    unrouted: bool = False
    last_choice: bool = False
    in_flight: int = 0
    breaker: Literal["closed", "open", "probing"] = "closed"
    failures: int = 0
    """In a row."""
    error: str = ""
    """Of the last failure; empty after a success."""
    others: float = -1.0
    """Others' requests running there. Negative: unknown, here and below."""
    waiting: float = -1.0
    kv_usage: float = -1.0
    idle_seconds: float = -1.0


class RouterTable(Frame, frozen=True, kw_only=True, tag="RouterTable"):
    """A router's own table, from its own admin listener."""

    router: RouterId
    log: str = ""
    connected: bool
    """To NATS; static mode: False."""
    mode: Literal["log", "disk", "seed", "static", "none"]
    """Where the table is from."""
    revision: int = 0
    catalog_hash: str = ""
    age_seconds: float
    """Since something last changed in it."""
    damage: str = ""
    refused: tuple[str, ...] = ()
    """Why a newer catalog is not in effect."""
    unreadable: tuple[str, ...] = ()
    models: tuple[ModelName, ...] = ()
    endpoints: tuple[EndpointRow, ...] = ()


class Status(Frame, frozen=True, kw_only=True, tag="Status"):
    """The fleet in one page."""

    log: str = ""
    leader: str = ""
    """Who claimed last."""
    leader_since: str = ""
    """When it took the lead, RFC 3339."""
    leading: bool
    """Whether the answering control leads."""
    damage: Damage | None = None
    recovering: bool = False
    """A new log is begun in the place of a lost one, and has no catalog yet."""
    halted: tuple[str, ...] = ()
    """Why nothing is decided: events of a newer version, a refused catalog, …"""
    warnings: tuple[str, ...] = ()
    catalog_revision: int = 0
    nodes: dict[str, int]
    """Count by condition."""
    models: dict[str, int]
    """Count by condition."""
    replicas: dict[str, int]
    """Count by phase."""
    attention: tuple[str, ...] = ()
    """What is broken or cannot be placed, one line each."""
    controls: tuple[ControlRow, ...] = ()
    routers: tuple[RouterRow, ...] = ()
    agents: AgentsFollowing = AgentsFollowing()
    brake: BrakeRow | None = None
    """Mass silence: nobody is given up while it is there."""


class NodeList(Frame, frozen=True, kw_only=True, tag="NodeList"):
    """All nodes."""

    items: tuple[NodeRow, ...]


class ReplicaList(Frame, frozen=True, kw_only=True, tag="ReplicaList"):
    """All replicas."""

    items: tuple[ReplicaRow, ...]


class ModelList(Frame, frozen=True, kw_only=True, tag="ModelList"):
    """All models of the catalog, and those on their way out."""

    items: tuple[ModelRow, ...]


class CatalogView(Frame, frozen=True, kw_only=True, tag="Catalog"):
    """The current catalog in a form that makes the same catalog again."""

    revision: int
    hash: str
    author: str
    source: Raw


class Explanation(Frame, frozen=True, kw_only=True, tag="Explanation"):
    """Why a model's replicas are where they are, or nowhere."""

    model: ModelName
    decided: Literal["placed", "unplaceable", "nothing yet"]
    decided_at_seq: int = 0
    rules: int
    wanted: int
    placed: int
    candidates: dict[NodeId, str]
    """By node: `fits`, or the first predicate that it failed, with its numbers."""
    refusals: tuple[NodeRefusal, ...] = ()
    now: str
    """What would be decided at asOfSeq."""


class StateDump(Frame, frozen=True, kw_only=True, tag="State"):
    """Every document, as `FleetState.dump` gives it."""

    state: Raw


class ApplyCatalog(Struct, frozen=True, kw_only=True, rename="camel"):
    """Make this the current catalog."""

    source: str
    """YAML text."""
    file: FileName = ""
    """Its name, for the places of faults."""
    prune: Prune = ()
    prune_all: bool = False
    if_revision: int | None = None
    reason: Reason = ""


class Route(Struct, frozen=True, kw_only=True):
    """One row of the API. `role` is the least that may call it."""

    name: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    role: Role
    request: type[Struct] | None = None
    response: type[Frame]
    has_past: bool = False
    """Takes `?at=`, a LOG sequence or an RFC 3339 time, and answers of that moment."""
    query: tuple[str, ...] = ()
    """What else it takes in its query."""

    @property
    def takes(self) -> tuple[str, ...]:
        """All that it takes in its query."""
        return (*self.query, "at") if self.has_past else self.query


ROUTES: tuple[Route, ...] = (
    Route(
        name="status",
        method="GET",
        path="/api/v1/status",
        role="viewer",
        response=Status,
        has_past=True,
    ),
    Route(
        name="nodes",
        method="GET",
        path="/api/v1/nodes",
        role="viewer",
        response=NodeList,
        has_past=True,
    ),
    Route(
        name="replicas",
        method="GET",
        path="/api/v1/replicas",
        role="viewer",
        response=ReplicaList,
        has_past=True,
    ),
    Route(
        name="models",
        method="GET",
        path="/api/v1/models",
        role="viewer",
        response=ModelList,
        has_past=True,
    ),
    Route(
        name="catalog",
        method="GET",
        path="/api/v1/catalog",
        role="viewer",
        response=CatalogView,
        has_past=True,
    ),
    Route(
        name="apply",
        method="POST",
        path="/api/v1/catalog",
        role="operator",
        request=ApplyCatalog,
        response=Accepted,
    ),
    Route(
        name="explain",
        method="GET",
        path="/api/v1/placement/{model}",
        role="viewer",
        response=Explanation,
        has_past=True,
    ),
    Route(
        name="state",
        method="GET",
        path="/api/v1/state",
        role="viewer",
        response=StateDump,
        has_past=True,
    ),
    Route(
        name="events",
        method="GET",
        path="/api/v1/events",
        role="viewer",
        response=EventList,
        query=("for", "type", "from", "since", "until", "limit", "wait"),
    ),
    Route(
        name="why",
        method="GET",
        path="/api/v1/why/{kind}/{name}",
        role="viewer",
        response=Why,
        has_past=True,
    ),
    Route(
        name="catalog-history",
        method="GET",
        path="/api/v1/catalog/revisions",
        role="viewer",
        response=CatalogHistory,
        has_past=True,
    ),
    Route(
        name="catalog-revision",
        method="GET",
        path="/api/v1/catalog/revisions/{revision}",
        role="viewer",
        response=CatalogView,
    ),
    Route(
        name="catalog-diff",
        method="GET",
        path="/api/v1/catalog/revisions/{old}/diff/{new}",
        role="viewer",
        response=CatalogDiff,
    ),
    Route(
        name="rollback",
        method="POST",
        path="/api/v1/catalog/rollback",
        role="operator",
        request=RollbackCatalog,
        response=Accepted,
    ),
    Route(
        name="brake",
        method="GET",
        path="/api/v1/brake",
        role="viewer",
        response=BrakeView,
        has_past=True,
    ),
    Route(
        name="brake-off",
        method="POST",
        path="/api/v1/brake",
        role="operator",
        request=ReleaseBrake,
        response=Accepted,
    ),
    Route(
        name="recovery",
        method="GET",
        path="/api/v1/journal/recovery",
        role="viewer",
        response=Recovery,
    ),
    Route(
        name="recover",
        method="POST",
        path="/api/v1/journal/recovery",
        role="admin",
        request=Recover,
        response=Accepted,
    ),
    Route(
        name="bad-documents",
        method="GET",
        path="/api/v1/journal/bad",
        role="viewer",
        response=BadDocuments,
        has_past=True,
    ),
    Route(
        name="mend",
        method="POST",
        path="/api/v1/journal/bad",
        role="admin",
        request=Mend,
        response=Accepted,
    ),
)
