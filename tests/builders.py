"""Values for tests: small, whole, with a keyword for each thing a test cares about."""

from schemas import codec, subjects
from schemas.catalog import CpuNeed, EngineEnvironment, Model, Profile
from schemas.documents import (
    Assignment,
    CatalogPointer,
    Document,
    EngineOnNode,
    Genesis,
    LastError,
    NodeCondition,
    NodeInfo,
    NodeVerdict,
    ProcessIdentity,
    ReplicaDocument,
    ReplicaGoal,
    ShardPhase,
    ShardPlan,
    ShardStatus,
)
from schemas.events import Event, log_prefix
from schemas.ids import EngineName, EventId, LogId, ModelName, NodeId, ReplicaId, replica_id
from services.fleet.state import FleetState

LOG_ID = LogId("0123456789abcdef0123456789abcdef")
AT = "2026-11-30T12:00:00.000000Z"
NOW = codec.seconds(AT)


def at(seconds_later: float) -> str:
    """A time after the start of every test's log."""
    return codec.rfc3339(NOW + seconds_later)


def a_genesis(
    log_id: LogId = LOG_ID, parent: LogId | None = None, ancestors: tuple[LogId, ...] = ()
) -> Genesis:
    return Genesis(log_id=log_id, format=1, parent=parent, ancestors=ancestors)


def a_node(
    name: str = "node-1", *, cores: float = 8.0, memory_gib: int = 32, engine: str = "llamacpp"
) -> NodeInfo:
    return NodeInfo(
        node=NodeId(name),
        machine_id=f"machine-of-{name}",
        boot_id="boot-1",
        incarnation="agent-1",
        agent_version="0.1.0",
        address="127.0.0.1",
        admin_address="127.0.0.1:7402",
        ports=(17000, 17099),
        cores=cores,
        memory_bytes=memory_gib << 30,
        engines=(EngineOnNode(name=EngineName(engine), kind="llamacpp", version="b11549"),),
    )


def a_model(name: str = "tiny", *, replicas: int = 1, source: str = "/models/tiny.gguf") -> Model:
    profile = Profile(
        engine=EngineEnvironment(name=EngineName("llamacpp"), kind="llamacpp"),
        source=source,
        cpu=CpuNeed(cores=1.0, memory_bytes=1 << 30),
    )
    return Model(
        name=ModelName(name), profile=profile, profile_hash=f"hash-of-{source}", replicas=replicas
    )


def a_replica(
    model: str = "tiny",
    slot: int = 0,
    *,
    node: str = "node-1",
    generation: int = 1,
    goal: ReplicaGoal = "run",
    port: int = 17000,
    deadline: str | None = None,
    profile_hash: str = "hash-of-/models/tiny.gguf",
) -> ReplicaDocument:
    return ReplicaDocument(
        id=replica_id(ModelName(model), slot, generation),
        model=ModelName(model),
        slot=slot,
        generation=generation,
        revision=1,
        profile_hash=profile_hash,
        attempt=1,
        shards=(ShardPlan(node=NodeId(node), rank=0, port=port),),
        goal=goal,
        since=AT,
        deadline=deadline,
    )


def a_shard(
    replica: ReplicaDocument | None = None,
    phase: ShardPhase = "ready",
    *,
    run: int = 0,
    error: LastError | None = None,
) -> ShardStatus:
    """What the agent says of the first shard of a replica."""
    of = replica or a_replica()
    plan = of.shards[0]
    return ShardStatus(
        node=plan.node,
        replica=of.id,
        model=of.model,
        rank=0,
        phase=phase,
        attempt=of.attempt,
        run=run,
        process=ProcessIdentity(boot_id="boot-1", pid=4242, start_ticks=1),
        port=plan.port,
        engine=EngineName("llamacpp"),
        since=AT,
        error=error,
        incarnation="agent-1",
    )


def a_pointer(revision: int = 1) -> CatalogPointer:
    return CatalogPointer(revision=revision, hash=f"hash-{revision}", author="tests")


def a_verdict(
    node: str = "node-1", condition: NodeCondition = "lost", *, patience: float | None = 60.0
) -> NodeVerdict:
    return NodeVerdict(
        node=NodeId(node),
        condition=condition,
        since=AT,
        lost_patience_seconds=patience,
    )


def subject_of(document: Document, *, shard_slot: int = 0) -> str:
    """Where a document stands in the log."""
    match document:
        case Genesis():
            return subjects.GENESIS
        case CatalogPointer():
            return subjects.CATALOG
        case NodeInfo():
            return subjects.node_info(document.node)
        case ShardStatus():
            return subjects.node_shard(document.node, shard_slot)
        case NodeVerdict():
            return subjects.node_verdict(document.node)
        case ReplicaDocument():
            return subjects.replica(document.model, document.slot)
        case Assignment():
            return subjects.assignment(document.node)
        case _:
            raise AssertionError(f"no subject known for {type(document).__name__}")


def an_event(
    document: object,
    *,
    id_: str = "event-1",
    kind: str = "test.happened",
    src: str = "control/test",
    at_: str = AT,
    log: LogId = LOG_ID,
    version: int = 1,
    optional: bool = False,
    cause: EventId | None = None,
    corr: EventId | None = None,
) -> bytes:
    """A stored payload."""
    return codec.encode(
        Event(
            id=EventId(id_),
            log=log_prefix(log),
            type=kind,
            v=version,
            at=at_,
            src=src,
            opt=optional,
            cause=cause,
            corr=corr,
            data=codec.raw(document),
        )
    )


class Script:
    """A log in memory: each document gets the next sequence and is folded at once."""

    def __init__(self, *documents: Document, parent: LogId | None = None) -> None:
        """`parent`: of a log that goes on from a lost one."""
        self.state = FleetState()
        self.log: list[tuple[int, str, bytes]] = []
        self.add(a_genesis(LOG_ID, parent, () if parent is None else (parent,)), *documents)

    def add(self, *documents: Document) -> "Script":
        """Documents whose subjects follow from themselves."""
        for document in documents:
            self.put(subject_of(document), document)
        return self

    def put(
        self,
        subject: str,
        document: object,
        *,
        kind: str = "test.happened",
        cause: EventId | None = None,
    ) -> int:
        """Append and fold; returns the sequence."""
        sequence = len(self.log) + 1
        payload = an_event(document, id_=f"event-{sequence}", kind=kind, cause=cause)
        self.log.append((sequence, subject, payload))
        self.state.apply(sequence, subject, payload)
        return sequence


def replica_name(model: str, slot: int = 0, generation: int = 1) -> ReplicaId:
    return replica_id(ModelName(model), slot, generation)
