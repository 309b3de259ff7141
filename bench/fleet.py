"""An imagined fleet of any size, as the documents that control, its agents and its catalog would write.

Everything is made by the product's own types and functions: endpoints, assignments and placement
verdicts are what `decide` says to the rest. In the end one replica has ended, so whoever leads this
fleet next has something to decide.
"""

from collections.abc import Iterable, Iterator
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import (
    Card,
    CatalogPointer,
    CatalogRevision,
    CommandRecord,
    ControlEpoch,
    Document,
    EngineOnNode,
    Genesis,
    Gone,
    NodeInfo,
    ProcessIdentity,
    ReplicaDocument,
    ShardPlan,
    ShardStatus,
)
from schemas.events import Event, log_prefix
from schemas.ids import (
    ControlId,
    EngineName,
    EventId,
    GpuUuid,
    LogId,
    ModelName,
    NodeId,
    ReplicaId,
    replica_id,
)
from services.control.deciding.reconcile import decide
from services.control.deciding.silence import Silence
from services.fleet.catalog import Catalog, CatalogFaults, from_yaml
from services.fleet.state import FleetState
from services.log.append import Sealed

LOG_ID = LogId("be4c" * 8)
CONTROL = ControlId("control-1")
CARDS = 8
_GIB = 1 << 30
_PORT = 17000


class Size(Struct, frozen=True):
    """How large a fleet."""

    nodes: int
    replicas: int
    models: int

    @property
    def per_node(self) -> int:
        return -(-self.replicas // self.nodes)


class Written(Struct, frozen=True):
    """One document on its way into a log."""

    subject: str
    type: str
    src: str
    document: Document

    def seal(self, id_: EventId, at: str) -> Sealed:
        """As an event."""
        event = Event(
            id=id_,
            log=log_prefix(LOG_ID),
            type=self.type,
            at=at,
            src=self.src,
            data=codec.raw(self.document),
        )
        return Sealed(self.subject, id_, codec.encode(event))


class Fleet:
    """Every document of a settled fleet, by subject; `history` and `ending` go on from there."""

    def __init__(self, size: Size, at: str) -> None:
        if size.per_node > CARDS:
            raise ValueError(f"{size.per_node} replicas a node, but {CARDS} cards")
        self.size = size
        self.at = at
        self.catalog = _catalog(size)
        self.documents: dict[str, Written] = {}
        self._events = 0
        self._shards: list[str] = []
        self._others: list[str] = []
        self._make()

    def _make(self) -> None:
        self._control(subjects.GENESIS, "log.begun", Genesis(log_id=LOG_ID, format=1))
        catalog = self.catalog
        revision = CatalogRevision(revision=1, hash=catalog.hash, source=catalog.source())
        self._control(subjects.catalog_revision(1), "catalog.stored", revision)
        pointer = CatalogPointer(revision=1, hash=catalog.hash, author="bench")
        self._control(subjects.CATALOG, "catalog.swapped", pointer)
        for number in range(self.size.nodes):
            info = _info(number)
            self._agent(info.node, subjects.node_info(info.node), "node.described", info)
        for number in range(self.size.replicas):
            self._replica(number)
        self._others = [subject for subject in self.documents if ".shard." not in subject][3:]
        state = self.fold()
        hears = Silence(hearing_seconds=0.0)
        for draft in decide(state, catalog.models, hears, codec.seconds(self.at)).drafts:
            self._control(draft.subject, draft.type, draft.document)

    def fold(self) -> FleetState:
        """The state that these documents make, in one order."""
        state = FleetState()
        for sequence, (subject, written) in enumerate(self.documents.items(), 1):
            state.apply(sequence, subject, written.seal(EventId(""), self.at).payload)
        return state

    def _replica(self, number: int) -> None:
        node, place = divmod(number, self.size.per_node)
        slot, model_number = divmod(number, self.size.models)
        model = self.catalog.models[_model_name(model_number)]
        info = _info(node)
        card = info.cards[place].uuid
        plan = ShardPlan(node=info.node, rank=0, gpus=(card,), port=_PORT + place)
        replica = ReplicaDocument(
            id=replica_id(model.name, slot, 1),
            model=model.name,
            slot=slot,
            generation=1,
            revision=1,
            profile_hash=model.profile_hash,
            attempt=1,
            shards=(plan,),
            goal="run",
            since=self.at,
        )
        self._control(subjects.replica(model.name, slot), "replica.placed", replica)
        subject = subjects.node_shard(info.node, place)
        self._shards.append(subject)
        self._agent(info.node, subject, "shard.ready", _ready(replica, self.at))

    def _control(self, subject: str, type_: str, document: Document) -> None:
        self.documents[subject] = Written(subject, type_, f"control/{CONTROL}", document)

    def _agent(self, node: NodeId, subject: str, type_: str, document: Document) -> None:
        self.documents[subject] = Written(subject, type_, f"agent/{node}", document)

    def history(self, seed: int = 7) -> Iterator[Written]:
        """For ever: mostly shards that say again how they are, now and then an order or a command."""
        rng = Random(seed)
        happened = CommandRecord(verb="cordon", actor="bench", source="here", outcome="accepted")
        command = Written(subjects.command("cordon"), "command.accepted", "control/b", happened)
        while True:
            kind = rng.random()
            if kind < 0.05:
                yield command
            else:
                subject = rng.choice(self._shards if kind < 0.85 else self._others)
                yield self.documents[subject]

    def sealed(self, documents: Iterable[Written]) -> Iterator[Sealed]:
        """As events of this log, each with an id of its own."""
        for written in documents:
            self._events += 1
            yield written.seal(EventId(f"bench-{self._events}"), self.at)

    def ending(self) -> list[Written]:
        """One replica is no more: the next leader has to unroute it, and to place another."""
        replica, shard = self.undone_ending()
        gone = Gone(id=replica_id(_model_name(0), 0, 1))
        return [
            replace(replica, type="replica.gone", document=gone),
            replace(shard, type="shard.gone", document=gone),
        ]

    def undone_ending(self) -> tuple[Written, Written]:
        """The first replica and its shard, as they were."""
        replica = subjects.replica(_model_name(0), 0)
        return self.documents[replica], self.documents[self._shards[0]]


def epoch() -> Sealed:
    """The first claim, in the name of the control that the bench starts: it claims again at once."""
    document = ControlEpoch(holder=CONTROL, incarnation="bench")
    written = Written(subjects.CONTROL_EPOCH, "control.claimed", f"control/{CONTROL}", document)
    return written.seal(EventId("bench-0"), codec.rfc3339(0.0))


def _model_name(number: int) -> ModelName:
    return ModelName(f"model-{number:03d}")


def _catalog(size: Size) -> Catalog:
    models = "".join(
        f"  {_model_name(number)}:\n"
        f"    engine: vllm\n"
        f"    source: /models/{_model_name(number)}\n"
        f"    gpu: {{class: h100-80gb, count: 1}}\n"
        f"    args: {{max-model-len: 32768}}\n"
        f"    replicas: {len(range(number, size.replicas, size.models))}\n"
        for number in range(size.models)
    )
    made = from_yaml(f"models:\n{models}")
    assert not isinstance(made, CatalogFaults), made.faults[0]
    return made


def _info(number: int) -> NodeInfo:
    name = f"n{number:05d}"
    return NodeInfo(
        node=NodeId(name),
        machine_id=f"machine-of-{name}",
        boot_id=f"boot-of-{name}",
        incarnation=f"agent-{name}",
        agent_version="0.1.0",
        address=f"10.{number >> 8 & 255}.{number & 255}.1",
        admin_address="127.0.0.1:9",
        ports=(_PORT, _PORT + 99),
        cards=tuple(
            Card(
                uuid=GpuUuid(f"GPU-{name}-0000-0000-{place:012d}"),
                gpu_class="h100-80gb",
                memory_bytes=80 * _GIB,
            )
            for place in range(CARDS)
        ),
        fabric=f"rack-{number // 32}",
        labels={"zone": f"z{number % 3}"},
        cores=128.0,
        memory_bytes=1024 * _GIB,
        engines=(EngineOnNode(name=EngineName("vllm"), kind="vllm", version="0.32.0"),),
    )


def _ready(replica: ReplicaDocument, at: str) -> ShardStatus:
    plan = replica.shards[0]
    return ShardStatus(
        node=plan.node,
        replica=ReplicaId(replica.id),
        model=replica.model,
        rank=0,
        phase="ready",
        attempt=1,
        run=0,
        gpus=plan.gpus,
        process=ProcessIdentity(boot_id=f"boot-of-{plan.node}", pid=4242, start_ticks=99),
        port=plan.port,
        engine=EngineName("vllm"),
        engine_version="0.32.0",
        since=at,
        incarnation=f"agent-{plan.node}",
    )
