"""How something is, in plain sentences: also what did not happen, and what it waits for. Pure.

The first line is the answer in short. All of it comes from the rows that every table shows.
"""

from collections.abc import Iterable, Iterator, Sequence

from schemas import subjects
from schemas.api import CardRow, ModelRow, NodeRow, ReplicaRow, ShardRow
from schemas.ids import GpuUuid, ModelName, NodeId, ReplicaId, parse_replica
from services.fleet import views
from services.fleet.catalog import Catalog
from services.fleet.state import FleetState
from services.fleet.telling.summaries import error_words
from services.fleet.telling.why import holders, nodes_with
from services.fleet.views import Live

MOST_REPLICAS = 10
"""That one answer tells of."""


def replica_answer(state: FleetState, live: Live, replica: ReplicaId) -> tuple[str, ...]:
    """(): no such replica now."""
    row = _row(state, live, replica)
    if row is not None:
        return tuple(_replica(row))
    slot = parse_replica(replica)
    gone = None if slot is None else state.gone.get(subjects.replica_slot(slot))
    if gone is not None and gone.document.id == replica:
        return (f"{replica} is gone", *_left_of(state, replica))
    return tuple(_left_of(state, replica))


def _row(state: FleetState, live: Live, replica: ReplicaId) -> ReplicaRow | None:
    held = state.replica(replica)
    if held is None and not state.unreadable:
        return None
    of_model = views.replicas(state, live, None if held is None else held.document.model)
    return next((row for row in of_model if row.replica == replica), None)


def _left_of(state: FleetState, replica: ReplicaId) -> Iterator[str]:
    """What agents still say of a replica that is decided no more."""
    for held in state.shards_of(replica):
        shard = held.document
        yield f"node {shard.node} still says {shard.phase} of it, and holds its cards until it says stopped"


def _replica(row: ReplicaRow) -> Iterator[str]:
    where = ", ".join(shard.node for shard in row.shards)
    routed = "routers may choose it" if row.routed else "routers do not choose it"
    yield f"{row.replica} is {row.phase} on {where}; {routed}"
    errors = [error_words(shard.error) for shard in row.shards if shard.error is not None]
    if row.reason and not (row.phase == "failed" and row.reason in errors):  # Told by shard, below.
        yield f"{'but' if row.phase == 'ready' else 'because:'} {row.reason}"
    if row.goal == "drain":
        yield "it takes no new requests; it waits until every router knows that, and its requests end"
    elif row.goal == "stop":
        yield f"it waits until {where} says that it has stopped"
    else:
        for shard in row.shards:
            yield from _waits(shard)
        if row.phase == "ready" and not row.routed:
            yield "it is ready, and its endpoint is not published yet"


def _waits(shard: ShardRow) -> Iterator[str]:
    """What a shard that is to run waits for."""
    match shard.phase:
        case "placed":
            yield f"it waits for the agent of {shard.node}, which has said nothing of it yet"
        case "loading" if shard.progress is not None:
            percent = shard.progress.percent
            far = "" if percent is None else f" {percent:.0f}%"
            yield f"it waits for the engine on {shard.node}: {shard.progress.step}{far}"
        case "starting" | "loading":
            yield f"it waits for the engine on {shard.node}, which is {shard.phase}"
        case "failed":
            yield from _failed(shard)
        case "stopping" | "stopped":
            yield f"its engine on {shard.node} is {shard.phase}"
        case _:
            pass


def _failed(shard: ShardRow) -> Iterator[str]:
    if shard.error is not None:
        yield f"the engine on {shard.node} failed: {error_words(shard.error)}"
    if shard.retry_at:
        yield f"failures in a row: {shard.failures}; it waits for the next try at {shard.retry_at}"
    elif shard.error is not None and shard.error.permanent:
        yield "trying again would change nothing: it waits for another catalog or node"


def model_answer(
    state: FleetState, catalog: Catalog, live: Live, model: ModelName
) -> tuple[str, ...]:
    """(): neither the catalog nor any replica knows it."""
    row = views.model(state, catalog, model)
    return () if row is None else tuple(_model(state, row, views.replicas(state, live, model)))


def _model(state: FleetState, row: ModelRow, replicas: Iterable[ReplicaRow]) -> Iterator[str]:
    yield f"{row.model} is {row.condition}: {row.ready} of {row.wanted} ready"
    placement = state.placement(row.model)
    if placement is not None and placement.document.verdict == "unplaceable":
        yield f"{placement.document.placed} of {placement.document.wanted} placed; no room for more"
        for refusal in placement.document.refusals:
            nodes = f"{refusal.nodes} x " if refusal.nodes else ""
            yield f"  {nodes}{refusal.reason}" + (f": {refusal.detail}" if refusal.detail else "")
    elif row.reason:
        yield f"because: {row.reason}"
    behind = [each for each in replicas if each.phase != "ready" or not each.routed]
    for each in behind[:MOST_REPLICAS]:
        first, *rest = _replica(each)
        yield first
        yield from (f"  {line}" for line in rest)
    if len(behind) > MOST_REPLICAS:
        yield f"and {len(behind) - MOST_REPLICAS} more replicas"


def node_answer(state: FleetState, live: Live, node: NodeId) -> tuple[str, ...]:
    """(): no agent describes it."""
    row = views.node(state, live, node)
    there = sorted(
        held.document.id
        for held in state.replicas.values()
        if any(plan.node == node for plan in held.document.shards)
    )
    return () if row is None else tuple(_node(row, there))


def _node(row: NodeRow, there: Sequence[ReplicaId]) -> Iterator[str]:
    since = f" since {row.condition_since}" if row.condition_since else ""
    yield f"node {row.node} is {row.condition}{since}; replicas placed there: {row.replicas}"
    if there:
        rest = len(there) - MOST_REPLICAS
        yield ", ".join(there[:MOST_REPLICAS]) + (f" and {rest} more" if rest > 0 else "")
    if row.condition == "unreachable":
        yield "its endpoints are chosen only when no other can serve; nothing is moved yet"
    if row.condition == "lost":
        yield "its replicas are rebuilt elsewhere; its cards stay held until it says stopped"
    if row.damaged:
        yield f"its agent acts on no assignment: {row.damaged}"
    if row.cards_fault:
        yield f"its cards could not be read: {row.cards_fault}"
    for card in row.cards:
        if card.health in {"unhealthy", "unknown"}:
            yield f"card {card.uuid} takes no replica: {card.health}: {card.reason}"


def gpu_answer(state: FleetState, live: Live, gpu: GpuUuid) -> tuple[str, ...]:
    """(): no node has such a card."""
    for node in nodes_with(state, gpu):
        row = views.node(state, live, node)
        card = next((card for card in row.cards if card.uuid == gpu), None) if row else None
        if row is not None and card is not None:
            held = holders(state, gpu)
            return (*_card(row, card, held), *_holding(state, live, held))
    return ()


def _card(row: NodeRow, card: CardRow, held: Iterable[ReplicaId]) -> Iterator[str]:
    by = ", ".join(held) or "nobody"
    yield f"card {card.uuid} on {row.node} is {card.health}, held by {by}"
    if card.reason:
        yield f"because: {card.reason}"
    if row.condition != "alive":
        yield f"node {row.node} is {row.condition}: the card is not free"


def _holding(state: FleetState, live: Live, held: Iterable[ReplicaId]) -> Iterator[str]:
    for replica in held:
        yield from replica_answer(state, live, replica)
