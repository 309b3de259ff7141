"""Which replicas end: rules 2 to 5 of `reconcile.py`. Pure."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import Gone, ReplicaDocument
from schemas.ids import EventId, ModelName
from services.control.deciding import rollout
from services.control.deciding.drafts import Order
from services.control.deciding.turn import Turn
from services.fleet.standing import Standing, lost_by

SETTLE_SECONDS = 10.0
"""An agent that had begun a replica before it learnt of its end says so within this time."""
DEFAULT_GRACE_SECONDS = 600.0
"""For a replica whose revision is no longer kept."""
LEFT_CATALOG = "the model left the catalog"


def end_unwanted(turn: Turn, models: Mapping[ModelName, Model]) -> None:
    """Rules 2 to 4: ended by agents, given up on lost nodes, retired."""
    for name, standings in sorted(turn.standings.items()):
        for standing in standings:
            if not standing.serving and standing.document.goal == "run" and standing.ended:
                bury(turn, standing, _last_report(standing))
        model = models.get(name)
        if model is None:
            for standing in standings:
                end(turn, standing, LEFT_CATALOG)
            continue
        for standing in () if turn.braked else rollout.to_give_up(model, standings):
            bury(turn, standing, lost_by([standing], turn.verdicts))
        retired = rollout.to_retire(model, standings)
        surplus = any(reason == rollout.SURPLUS for _, reason in retired)
        returned = _returned(turn, standings) if surplus else None
        for standing, reason in retired:
            cause = turn.adopted.get(standing.id) or returned
            end(turn, standing, reason, cause if reason == rollout.SURPLUS else None)


def _last_report(standing: Standing) -> EventId | None:
    newest = max(standing.shards, key=lambda held: held.sequence, default=None)
    return None if newest is None else newest.event


def _returned(turn: Turn, standings: Iterable[Standing]) -> EventId | None:
    """The verdict that brought a node of theirs back since the catalog was swapped."""
    pointer = turn.state.catalog.get(())
    swapped = 0 if pointer is None else pointer.sequence
    for node in sorted({plan.node for s in standings for plan in s.document.shards}):
        verdict, held = turn.verdict(node), turn.state.verdict(node)
        new = held is None or held.event != verdict.event or held.sequence > swapped
        if verdict.document is not None and verdict.condition == "alive" and new:
            return verdict.event
    return None


def end(turn: Turn, standing: Standing, reason: str, cause: EventId | None = None) -> None:
    """Drain a replica that serves; stop one that does not. No `cause`: the swap of the catalog."""
    if standing.gone or standing.untouchable or standing.document.goal != "run":
        return
    before = standing.document.reason
    document = replace(
        standing.document,
        goal="drain" if standing.serving else "stop",
        since=codec.rfc3339(turn.now),
        reason=f"{reason}; {before}" if before else reason,
        deadline=_deadline(turn, standing.document) if standing.serving else None,
    )
    label = "replica.draining" if standing.serving else "replica.stopping"
    event = turn.drafts.put(
        Order.RELEASE,
        _subject(document),
        label,
        document,
        cause=cause or turn.pointer,
        corr=None if cause else turn.pointer,
    )
    standing.becomes(document, event)


def _deadline(turn: Turn, replica: ReplicaDocument) -> str | None:
    model = turn.model(replica.model) or turn.model_as_placed(replica)
    grace = DEFAULT_GRACE_SECONDS if model is None else model.drain_grace_seconds
    return None if grace is None else codec.rfc3339(turn.now + grace)


def bury_finished(turn: Turn) -> None:
    """Rule 5: what was to end, and of which no agent has anything left."""
    for _, standings in sorted(turn.standings.items()):
        for standing in standings:
            if standing.document.goal == "run":
                continue
            if standing.lost:
                bury(turn, standing, lost_by([standing], turn.verdicts))
            elif not standing.running and _is_settled(turn, standing):
                bury(turn, standing, _last_report(standing) or standing.event)


def _is_settled(turn: Turn, standing: Standing) -> bool:
    """An agent said that it stopped; or an agent that is heard had the time to say anything else."""
    if standing.shards:
        return True
    left = codec.seconds(standing.document.since) + SETTLE_SECONDS - turn.now
    if left > 0:
        turn.waits.append(left)
    return standing.alive and left <= 0


def bury(turn: Turn, standing: Standing, cause: EventId | None) -> None:
    """The replica is gone; its slot may be used again."""
    if standing.gone or standing.untouchable:
        return
    standing.event = turn.drafts.put(
        Order.GONE,
        _subject(standing.document),
        "replica.gone",
        Gone(id=standing.id),
        cause=cause,
    )
    standing.gone = True


def _subject(replica: ReplicaDocument) -> str:
    return subjects.replica(replica.model, replica.slot)
