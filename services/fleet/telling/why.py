"""Why something is as it is: the chain of causes, walked back through the log. Pure.

A walk is a generator: it yields what it wants of the log (`Past`, `Find`), is sent what was found, and
returns the chain. So the same walk runs on a log in memory and on a server. What it needs of the state
it takes when it is made, so that the state may go on meanwhile.

Where it begins: the documents of what is asked about. From each event it goes to the one that its
writer named as its cause, and from a command's swap to the record of who asked.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from schemas import codec, subjects
from schemas.documents import Assignment, EndpointShard, ReplicaDocument, ShardStatus
from schemas.events import Event
from schemas.history import CauseRow
from schemas.ids import (
    EventId,
    GpuUuid,
    ModelName,
    NodeId,
    ReplicaId,
    ReplicaParts,
    parse_replica,
    token,
)
from services.fleet.state import FleetState, Held
from services.fleet.telling.asking import Asking, Find, Past
from services.fleet.telling.concerns import Target, concerns
from services.fleet.telling.happened import Happened
from services.fleet.telling.summaries import label, summary
from services.fleet.telling.swaps import last_swap

MOST_CAUSES = 60
"""Events in one answer. A chain that is longer has told enough."""
MOST_DOCUMENTS = 20
"""Of one model, where a walk begins."""


Walk = Asking["Story"]


class Story:
    """What was found, by sequence; and which causes were not."""

    def __init__(self) -> None:
        self.found: dict[int, Happened] = {}
        self.missing: list[str] = []
        self._ids: set[EventId] = set()

    def add(self, events: Iterable[Happened]) -> None:
        """An event is told once."""
        for event in events:
            self.found[event.sequence] = event
            if event.id is not None:
                self._ids.add(event.id)

    def knows(self, wanted: EventId) -> bool:
        """Whether it was found already."""
        return wanted in self._ids

    def rows(self) -> tuple[CauseRow, ...]:
        """The newest first."""
        newest = sorted(self.found.values(), key=lambda found: -found.sequence)
        return tuple(row(found) for found in newest[:MOST_CAUSES])


def row(found: Happened) -> CauseRow:
    """An event in words, or what stands in the place of one."""
    event = found.event
    if event is None:
        return CauseRow(
            seq=found.sequence,
            at=codec.rfc3339(found.stamp) if found.stamp else "",
            type=label(found),
            subject=found.subject,
            summary=summary(found),
        )
    return CauseRow(
        seq=found.sequence,
        at=event.at,
        type=label(found),
        src=event.src,
        subject=found.subject,
        id=event.id,
        cause=event.cause or _record(event),
        corr=event.corr,
        summary=summary(found),
    )


class _Replica(Struct, frozen=True):
    """One replica, and what the state says of where it was."""

    id: ReplicaId
    slot: ReplicaParts
    nodes: frozenset[NodeId]


def _of_state(state: FleetState, replicas: Iterable[ReplicaId]) -> list[_Replica]:
    return [
        _Replica(each, slot, frozenset(held.document.node for held in state.shards_of(each)))
        for each in replicas
        if (slot := parse_replica(each)) is not None
    ]


def why_replica(state: FleetState, replica: ReplicaId) -> Walk:
    """Its own documents, what its nodes said, whether routers know it, and what caused all that."""
    return _walk_replicas(_of_state(state, [replica]))


def _walk_replicas(replicas: Iterable[_Replica]) -> Walk:
    story = Story()
    for each in replicas:
        yield from _tell_replica(story, each)
    yield from _trace(story)
    return story


def why_model(state: FleetState, model: ModelName) -> Walk:
    """Its last placement verdict, its endpoints, its replicas, and what caused all that."""
    return _walk_model(model, _documents_of(state, model)[:MOST_DOCUMENTS])


def _walk_model(model: ModelName, held: Sequence[Held[Any]]) -> Walk:
    story = Story()
    for each in held:
        story.add((yield Find(each.event, each.sequence)))
    if not held:
        past = yield Past(
            (
                subjects.placement(model),
                f"{subjects.STATE_ROOT}replica.{token(model)}.*",
                f"{subjects.STATE_ROOT}endpoints.{token(model)}.*",
            )
        )
        story.add(_last(past))
    swap = yield from last_swap(model)
    story.add([] if swap is None else [swap])
    yield from _trace(story)
    return story


def _last(past: Iterable[Happened]) -> Iterable[Happened]:
    """Of each subject the last that could be read, and what cannot be and stands there now."""
    good: dict[str, Happened] = {}
    bad: dict[str, Happened] = {}
    for found in past:
        if found.document is None:
            bad[found.subject] = found
        else:
            good[found.subject] = found
            bad.pop(found.subject, None)
    return [*good.values(), *bad.values()]


def _documents_of(state: FleetState, model: ModelName) -> list[Held[Any]]:
    """The verdict first, then what agents and control said last of its replicas, the newest first."""
    verdict = state.placement(model)
    of_model: list[Held[Any]] = [
        held
        for table in (state.replicas, state.endpoints, state.shards)
        for held in table.values()
        if held.document.model == model
    ]
    newest = sorted(of_model, key=lambda held: -held.sequence)
    return newest if verdict is None else [verdict, *newest]


def why_node(node: NodeId) -> Walk:
    """How it described itself, what control held of its silence, what it was told."""
    story = Story()
    past = yield Past((f"{subjects.STATE_ROOT}node.{token(node)}.verdict",))
    story.add(past[-3:])
    story.add(_last((yield Past((subjects.node_info(node), subjects.assignment(node))))))
    yield from _trace(story)
    return story


def why_gpu(state: FleetState, gpu: GpuUuid) -> Walk:
    """The node's last word on it, and the replicas that hold it."""
    return _walk_gpu(gpu, nodes_with(state, gpu), _of_state(state, holders(state, gpu)))


def _walk_gpu(gpu: GpuUuid, nodes: Sequence[NodeId], replicas: Sequence[_Replica]) -> Walk:
    story = Story()
    for node in nodes:
        story.add(_last((yield Past((subjects.node_info(node),)))))
    for each in replicas:
        yield from _tell_replica(story, each)
    if not replicas:
        past = yield Past((subjects.ALL_REPLICAS,))
        story.add([found for found in past if concerns(found, Target("gpu", gpu))][-1:])
    yield from _trace(story)
    return story


def nodes_with(state: FleetState, gpu: GpuUuid) -> list[NodeId]:
    """That say they have the card."""
    infos = (held.document for held in state.infos.values())
    return [info.node for info in infos if any(card.uuid == gpu for card in info.cards)]


def holders(state: FleetState, gpu: GpuUuid) -> tuple[ReplicaId, ...]:
    """Replicas whose own document, or a shard document short of stopped, names the card."""
    decided = (
        held.document.id
        for held in state.replicas.values()
        if any(gpu in plan.gpus for plan in held.document.shards)
    )
    reported = (
        held.document.replica
        for held in state.shards.values()
        if gpu in held.document.gpus and held.document.phase != "stopped"
    )
    return tuple(sorted({*decided, *reported}))


def _tell_replica(story: Story, told_of: _Replica) -> Asking[None]:
    replica, slot = told_of.id, told_of.slot
    own = [
        found
        for found in (yield Past((subjects.replica_slot(slot),)))
        if concerns(found, _replica(replica))
    ]
    story.add(own)
    nodes = _nodes_of(own) | told_of.nodes
    if nodes:
        past = yield Past(_shard_subjects(nodes))
        story.add(_steps([found for found in past if concerns(found, _replica(replica))]))
        told = yield Past(tuple(subjects.assignment(node) for node in sorted(nodes)))
        story.add(_told(told, replica))
    story.add(
        _published((yield Past((f"{subjects.STATE_ROOT}endpoints.{slot.model}.*",))), replica)
    )


def _replica(replica: ReplicaId) -> Target:
    return Target("replica", replica)


def _nodes_of(own: Iterable[Happened]) -> set[NodeId]:
    return {
        plan.node
        for found in own
        if isinstance(found.document, ReplicaDocument)
        for plan in found.document.shards
    }


def _shard_subjects(nodes: Iterable[NodeId]) -> tuple[str, ...]:
    return tuple(sorted(f"{subjects.STATE_ROOT}node.{token(node)}.shard.*" for node in {*nodes}))


def _steps(reports: Sequence[Happened]) -> Iterable[Happened]:
    """Of each phase of each run the last report: percents are no causes."""
    last: dict[object, Happened] = {}
    for found in reports:
        shard = found.document
        if isinstance(shard, ShardStatus):
            last[shard.node, shard.attempt, shard.run, shard.phase] = found
        else:
            last[found.sequence] = found
    return last.values()


def _told(assignments: Sequence[Happened], replica: ReplicaId) -> Iterable[Happened]:
    """Where the replica came into an assignment, changed its goal there, or left it."""
    before: dict[str, object] = {}
    for found in assignments:
        document = found.document
        if isinstance(document, Assignment):
            now = next((shard.goal for shard in document.shards if shard.replica == replica), None)
            if now != before.get(found.subject):
                yield found
            before[found.subject] = now


def _published(past: Iterable[Happened], replica: ReplicaId) -> Iterable[Happened]:
    """Where routers were told of it, told something else of it, or told no more: of others is no cause."""
    before: dict[str, object] = {}
    for found in past:
        document = found.document
        if isinstance(document, EndpointShard):
            entries = (each for each in document.endpoints if each.replica == replica)
            now = next(entries, None)
            if now != before.get(found.subject):
                yield found
            before[found.subject] = now


def _trace(story: Story) -> Asking[None]:
    """From every event of the story to its cause, and to the record of the command at its root."""
    waiting = list(story.found.values())
    while waiting and len(story.found) < MOST_CAUSES:
        found = waiting.pop(0)
        for wanted in _causes(found):
            if story.knows(wanted.id):
                continue
            causes = yield wanted
            story.add(causes)
            waiting += causes
            if not causes:
                story.missing.append(
                    f"the cause of sequence {found.sequence}, event {wanted.id}, "
                    "is not in what is kept of the log"
                )


def _causes(found: Happened) -> Iterable[Find]:
    event = found.event
    if event is None:
        return
    if event.cause is not None:
        yield Find(event.cause, found.sequence, _hints(found))
    if (record := _record(event)) is not None:
        yield Find(record, found.sequence, (subjects.command(">"),))


def _record(event: Event) -> EventId | None:
    """Of the command, where this is what the command wrote itself."""
    own = event.corr is not None and event.id == event.corr
    return EventId(f"{event.corr}-record") if own else None


def _hints(found: Happened) -> tuple[str, ...]:
    """A decision follows a swap or the report of an agent; an agent's report follows a decision."""
    if isinstance(found.document, ShardStatus):
        slot = parse_replica(found.document.replica)
        return () if slot is None else (subjects.replica_slot(slot),)
    return (subjects.CATALOG, f"{subjects.STATE_ROOT}node.*.shard.*")
