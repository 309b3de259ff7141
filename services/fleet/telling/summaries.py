"""Every event in one line of plain words: the only place where they are told. Pure.

The document says what to tell, the label which verb fits. An event of a family or version that is not
known here is told by its label.
"""

from collections.abc import Sequence
from typing import Final

from schemas import subjects
from schemas.documents import (
    AssignedShard,
    Assignment,
    CatalogPointer,
    CatalogRevision,
    CommandRecord,
    ControlBrake,
    ControlEpoch,
    Document,
    EndpointShard,
    Genesis,
    Gone,
    LastError,
    NodeInfo,
    NodeVerdict,
    PlacementVerdict,
    ReplicaDocument,
    RouterReport,
    ShardStatus,
)
from services.fleet.telling.happened import Happened

LABELS: Final = frozenset(
    {
        "assignment.changed",
        "brake.eased",
        "brake.engaged",
        "brake.held",
        "brake.released",
        "catalog.recovered",
        "catalog.stored",
        "catalog.swapped",
        "command.accepted",
        "command.refused",
        "control.claimed",
        "document.restored",
        "document.retired",
        "endpoints.gone",
        "endpoints.published",
        "log.begun",
        "log.recovered",
        "node.alive",
        "node.described",
        "node.lost",
        "node.unreachable",
        "placement.gone",
        "placement.placed",
        "placement.unplaceable",
        "replica.adopted",
        "replica.draining",
        "replica.gone",
        "replica.moved_port",
        "replica.placed",
        "replica.stopping",
        "router.reported",
        "router.shortened",
        "shard.cleared",
        "shard.failed",
        "shard.gone",
        "shard.loading",
        "shard.ready",
        "shard.starting",
        "shard.stopped",
        "shard.stopping",
    }
)
"""Every label that this version writes."""

UNREADABLE = "unreadable"
"""Shown in place of a label, of what cannot be read; a label of ours has a dot."""

MOST_NAMED = 6
"""Names that one line tells; the rest is a number."""


def label(found: Happened) -> str:
    """The type of what happened, as it is shown."""
    return UNREADABLE if found.event is None or found.fault else found.event.type


def summary(found: Happened) -> str:
    """What happened, for people."""
    if found.event is None:
        return f"cannot be read: {found.fault}"
    if found.fault:
        said = f"{found.event.type} by {found.event.src}"
        return f"cannot be read: {found.fault}; it says that it is {said}"
    if found.document is None:
        return f"{found.event.type} v{found.event.v} (not known to this version)"
    mended = "put right by command: " if found.event.type.startswith("document.") else ""
    return mended + _tell(found.event.type, found.subject, found.document)


def _tell(label: str, subject: str, document: Document) -> str:  # noqa: C901 - one case a family of documents.
    match document:
        case Genesis():
            return _genesis(document)
        case CatalogPointer():
            why = f": {document.reason}" if document.reason else ""
            return f"catalog r{document.revision} became current, by {document.author}{why}"
        case CatalogRevision():
            return f"catalog r{document.revision} was stored"
        case NodeInfo():
            return _node(document)
        case ShardStatus():
            return _shard(document)
        case NodeVerdict():
            return _verdict(document)
        case ReplicaDocument():
            return _replica(label, document)
        case Assignment():
            return _assignment(document)
        case EndpointShard():
            return _endpoints(document)
        case PlacementVerdict():
            return _placement(document)
        case ControlEpoch():
            return f"control {document.holder} took the lead"
        case ControlBrake():
            return _brake(label, document)
        case RouterReport():
            return _router(label, document)
        case CommandRecord():
            return _command(document)
        case Gone():
            return _gone(subject, document)
        case _:
            return label


def _genesis(genesis: Genesis) -> str:
    parent = f", which goes on from log {genesis.parent[:8]}" if genesis.parent else ""
    return f"log {genesis.log_id[:8]} began{parent}"


def _node(info: NodeInfo) -> str:
    cards = f", {_count(len(info.cards), 'card')}" if info.cards else ""
    bad = [card for card in info.cards if card.health in {"unhealthy", "unknown"}]
    told = "; ".join(f"{card.uuid} {card.health}: {card.reason}" for card in bad[:MOST_NAMED])
    fault = info.cards_fault or told
    return (
        f"node {info.node} described itself: agent {info.agent_version}, {info.cores:g} cores{cards}"
        + (f"; {fault}" if fault else "")
    )


def _verdict(verdict: NodeVerdict) -> str:
    if verdict.condition == "lost":
        outlasted = verdict.lost_patience_seconds
        silent = "" if outlasted is None else f", silent for more than {outlasted:g} s"
        return f"node {verdict.node} is lost{silent}"
    if verdict.condition == "unreachable":
        return f"node {verdict.node} is unreachable: not heard"
    return f"node {verdict.node} is alive: heard again"


def _brake(label: str, brake: ControlBrake) -> str:
    match label:
        case "brake.eased":
            return "most nodes are heard again: the brake ends if that lasts"
        case "brake.held":
            return "nodes are silent again: the brake holds"
        case _ if brake.engaged:
            silent = f"{brake.silent} of {brake.nodes} nodes fell silent at once"
            return f"the brake is on: {silent}; none is held for lost, nothing is rebuilt"
        case _:
            by = "by command" if brake.released_by else "by itself"
            return f"the brake is off, {by}; it was on since {brake.since}"


def _replica(label: str, replica: ReplicaDocument) -> str:
    where = ", ".join(plan.node for plan in replica.shards)
    cards = sum(len(plan.gpus) for plan in replica.shards)
    because = f": {replica.reason}" if replica.reason else ""
    if label == "replica.moved_port":
        ports = ", ".join(str(plan.port) for plan in replica.shards)
        return f"{replica.id} on {where} gets port {ports} (attempt {replica.attempt})"
    if replica.goal == "drain":
        until = f", until {replica.deadline} at the latest" if replica.deadline else ""
        return f"{replica.id} on {where} is to drain{because}{until}"
    if replica.goal == "stop":
        return f"{replica.id} on {where} is to stop{because}"
    with_cards = f" with {_count(cards, 'card')}" if cards else ""
    word = "placed" if label == "replica.placed" else "is to run"
    return f"{replica.id} {word} on {where}{with_cards}, for catalog r{replica.revision}{because}"


def _shard(shard: ShardStatus) -> str:
    told = f"{shard.replica} on {shard.node}: {shard.phase}"
    if shard.phase == "loading" and shard.progress is not None:
        percent = shard.progress.percent
        told += f", {shard.progress.step}" + ("" if percent is None else f" {percent:.0f}%")
    if shard.run:
        told += f" (restart {shard.run})"
    if shard.phase in {"failed", "stopped"} and shard.error is not None:
        told += f": {error_words(shard.error)}"
    if shard.phase == "failed":
        told += f"; next try at {shard.retry_at}" if shard.retry_at else "; no other try by itself"
    return told


def error_words(error: LastError) -> str:
    """The class of a failure and its decisive line."""
    return f"{error.failure}: {error.message}"


def _assignment(assignment: Assignment) -> str:
    if not assignment.shards:
        return f"node {assignment.node} is to run nothing"
    return f"node {assignment.node} is to run {_named([_ordered(s) for s in assignment.shards])}"


def _ordered(shard: AssignedShard) -> str:
    return f"{shard.replica} (to drain)" if shard.goal == "drain" else shard.replica


def _endpoints(shard: EndpointShard) -> str:
    part = f" (part {shard.shard + 1} of {shard.shards})" if shard.shards > 1 else ""
    if not shard.endpoints:
        return f"routers are told of no endpoint of {shard.model}{part}"
    names = [
        e.replica
        + (" (no new requests)" if e.unrouted else " (last choice)" if e.last_choice else "")
        for e in shard.endpoints
    ]
    return f"routers are told of {shard.model}{part}: {_named(names)}"


def _placement(verdict: PlacementVerdict) -> str:
    told = f"{verdict.model}: {verdict.placed} of {verdict.wanted} placed"
    if verdict.verdict == "placed":
        return told
    reasons = "; ".join(
        (f"{refusal.nodes} x {refusal.reason}" if refusal.nodes else refusal.reason)
        + (f" ({refusal.detail})" if refusal.detail else "")
        for refusal in verdict.refusals
    )
    return f"{told}, no room for more: {reasons}"


def _router(label: str, report: RouterReport) -> str:
    used = _count(sum(len(use.last_used) for use in report.use), "replica")
    if label == "router.shortened":
        return f"router {report.router} reported less: {report.chunks} parts"
    unreachable = [f"{name}: {reason}" for name, reason in sorted(report.unreachable.items())]
    missing = f"; cannot reach {_named(unreachable)}" if unreachable else ""
    return f"router {report.router} reported the last use of {used}{missing}"


def _command(record: CommandRecord) -> str:
    because = f" ({record.reason})" if record.reason else ""
    of = f" of {record.target}" if record.target else ""
    return f"{record.actor} asked for {record.verb}{of}{because}: {record.outcome}, {record.detail}"


def _gone(subject: str, gone: Gone) -> str:
    match subject.removeprefix(subjects.STATE_ROOT).split("."):
        case ["replica", *_]:
            return f"{gone.id} is gone"
        case ["node", _, "shard", slot] if gone.id == f"slot-{slot}":
            return f"slot {slot} of a node is cleared: nothing stands behind what was there"
        case ["node", _, "shard", _]:
            return f"a node has nothing left of {gone.id}"
        case ["endpoints", *_]:
            return f"routers are told of no endpoint of {gone.id.rpartition('-')[0]} any more"
        case ["placement", _]:
            return f"{gone.id} is placed no more: it left the catalog"
        case [family, *_]:
            return f"{family} {gone.id} is gone"
        case _:
            return f"{gone.id} is gone"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _named(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest
