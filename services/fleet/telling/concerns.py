"""Which events concern a node, a replica, a model, a card or a command. Pure.

`patterns` says which subjects can hold any, for the server to leave out the rest; `concerns` decides.
"""

from collections.abc import Iterable

from msgspec import Struct

from schemas import subjects
from schemas.documents import (
    Assignment,
    CommandRecord,
    Document,
    EndpointShard,
    Gone,
    NodeInfo,
    NodeVerdict,
    PlacementVerdict,
    ReplicaDocument,
    ShardStatus,
)
from schemas.history import TargetKind
from schemas.ids import EventId, ModelName, NodeId, ReplicaId, parse_replica, token
from services.fleet.telling.happened import Happened

_COMMANDS = subjects.command(">")
_STATE = subjects.STATE_ROOT
_OF_NODES = {"node", "assignment"}
"""Families whose subjects name a node."""
_OF_MODELS = {"replica", "endpoints", "placement"}
"""Families whose subjects name a model."""


class Target(Struct, frozen=True):
    """What is asked about."""

    kind: TargetKind
    name: str


def patterns(target: Target) -> tuple[str, ...]:
    """Log subjects that can hold what concerns it; no two of them match one subject. (): all."""
    name = target.name
    match target.kind:
        case "node":
            node = token(name)
            own = (f"{_STATE}node.{node}.>", subjects.assignment(NodeId(name)))
            return (*own, subjects.ALL_REPLICAS, subjects.ALL_ENDPOINTS, _COMMANDS)
        case "replica":
            slot = parse_replica(name)
            if slot is None:
                return (f"{_STATE}replica.none",)
            return (
                subjects.replica_slot(slot),
                f"{_STATE}node.*.shard.*",
                f"{_STATE}assignment.*",
                f"{_STATE}endpoints.{slot.model}.*",
                _COMMANDS,
            )
        case "model":
            model = token(name)
            return (
                f"{_STATE}replica.{model}.*",
                f"{_STATE}endpoints.{model}.*",
                subjects.placement(ModelName(name)),
                f"{_STATE}node.*.shard.*",
                subjects.CATALOG,
                _COMMANDS,
            )
        case "gpu":
            return (f"{_STATE}node.*.info", f"{_STATE}node.*.shard.*", subjects.ALL_REPLICAS)
        case "command":
            return ()


def concerns(found: Happened, target: Target) -> bool:
    """Whether the event says anything of it. Of a swap and a model, `swaps.touches` says so."""
    if target.kind == "command":
        return _of_command(found, EventId(target.name))
    if found.document is None:
        return stands_at(found.subject, target)
    return _concerns(found.subject, found.document, target)


def stands_at(subject: str, target: Target) -> bool:
    """Whether the subject is one of its own, whatever stands there."""
    words = _words(subject)
    match target.kind:
        case "node":
            return words[0] in _OF_NODES and words[1:2] == [token(target.name)]
        case "model":
            return words[0] in _OF_MODELS and words[1:2] == [token(target.name)]
        case "replica":
            slot = parse_replica(target.name)
            return slot is not None and subject == subjects.replica_slot(slot)
        case _:
            return False


def _of_command(found: Happened, command: EventId) -> bool:
    event, document = found.event, found.document
    if isinstance(document, CommandRecord) and document.asked == command:
        return True
    return event is not None and command in {event.id, event.corr, event.cause}


def _concerns(subject: str, document: Document, target: Target) -> bool:
    if isinstance(document, CommandRecord):
        return document.target in {target.name, f"{target.kind}/{target.name}"}
    match target.kind:
        case "node" if isinstance(document, Gone):
            return stands_at(subject, target)
        case "node":
            return target.name in _nodes(document)
        case "replica":
            return target.name in _replicas(document)
        case "model":
            return _is_of_model(subject, document, ModelName(target.name))
        case "gpu":
            return target.name in _cards(document)
        case "command":
            return False


def _words(subject: str) -> list[str]:
    return subject.removeprefix(_STATE).split(".")


def _nodes(document: Document) -> Iterable[str]:
    match document:
        case ReplicaDocument():
            return (plan.node for plan in document.shards)
        case EndpointShard():
            return (endpoint.node for endpoint in document.endpoints)
        case NodeInfo() | NodeVerdict() | ShardStatus() | Assignment():
            return (document.node,)
        case _:
            return ()


def _replicas(document: Document) -> Iterable[ReplicaId | str]:
    match document:
        case ReplicaDocument() | Gone():
            return (document.id,)
        case ShardStatus():
            return (document.replica,)
        case Assignment():
            return (shard.replica for shard in document.shards)
        case EndpointShard():
            return (endpoint.replica for endpoint in document.endpoints)
        case _:
            return ()


def _is_of_model(subject: str, document: Document, model: ModelName) -> bool:
    match document:
        case ReplicaDocument() | ShardStatus() | EndpointShard() | PlacementVerdict():
            return document.model == model
        case Gone():
            slot = parse_replica(document.id)
            own = slot is not None and slot.model == token(model)
            return own or stands_at(subject, Target("model", model))
        case _:
            return False


def _cards(document: Document) -> Iterable[str]:
    match document:
        case NodeInfo():
            return (card.uuid for card in document.cards)
        case ShardStatus():
            return document.gpus
        case ReplicaDocument():
            return (gpu for plan in document.shards for gpu in plan.gpus)
        case _:
            return ()
