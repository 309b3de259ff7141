"""Endpoint documents: which ready replicas routers may choose. Pure.

An endpoint stands as long as every shard of its replica is ready in the current attempt. It is
`unrouted` once the replica is to end, and the last choice while a node of it is not alive. Up to 500
go into one document, cut by a stable hash; a model's documents are written in one batch.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from schemas import subjects
from schemas.documents import Endpoint, EndpointShard, Gone
from schemas.ids import EventId, ModelName, ReplicaId, token
from services.control.deciding.drafts import Order
from services.control.deciding.turn import Turn
from services.fleet import phases
from services.fleet.addresses import joined
from services.fleet.standing import Standing
from services.fleet.state import Held
from services.fleet.unread import is_unknown_node


def publish(turn: Turn) -> None:
    """Write what changed of every model's endpoints."""
    published: dict[ModelName, dict[int, Held[EndpointShard]]] = {}
    for _, held in sorted(turn.state.endpoints.items()):
        published.setdefault(held.document.model, {})[held.document.shard] = held
    for model in sorted(published.keys() | turn.standings.keys()):
        _publish(turn, model, published.get(model, {}))


def _publish(turn: Turn, model: ModelName, before: dict[int, Held[EndpointShard]]) -> None:
    left = [s for s in turn.standings.get(model, []) if not s.gone]
    old = {e.replica: e for held in before.values() for e in held.document.endpoints}
    endpoints, changed = _endpoints(turn, left, old)
    if endpoints and not changed and not turn.state.unreadable and _is_whole(before):
        return  # The rule: then nothing need be cut and compared.
    vanished = turn.models is not None and model not in turn.models and not left
    if vanished or (not endpoints and not before):
        wanted: list[EndpointShard] = []
    else:
        wanted = _cut(model, endpoints)
    first = True
    for document in wanted:
        subject = subjects.endpoints(model, document.shard)
        held = before.pop(document.shard, None)
        same = held is not None and held.document == document
        if same and subject not in turn.state.unreadable:
            continue
        cause = _cause(turn, held, document)
        turn.drafts.put(
            Order.ENDPOINTS,
            subject,
            "endpoints.published",
            document,
            cause=cause,
            together=not first,
        )
        first = False
    for shard in sorted(before):
        turn.drafts.put(
            Order.ENDPOINTS,
            subjects.endpoints(model, shard),
            "endpoints.gone",
            Gone(id=f"{token(model)}-{shard:02d}"),
            cause=turn.pointer if vanished else None,
            together=not first,
        )
        first = False


def _endpoints(
    turn: Turn, standings: Iterable[Standing], old: Mapping[ReplicaId, Endpoint]
) -> tuple[list[Endpoint], bool]:
    """Those that are to stand, and whether they are others than those that do."""
    found: list[Endpoint] = []
    changed = False
    for standing in standings:
        published = old.get(standing.id)
        endpoint = _endpoint(turn, standing, published) or _kept(turn, standing, published)
        if endpoint is not None:
            found.append(endpoint)
            changed = changed or endpoint is not published
    return found, changed or len(found) != len(old)


def _is_whole(before: Mapping[int, Held[EndpointShard]]) -> bool:
    """The documents are those of one cut."""
    return sorted(before) == list(range(len(before))) and all(
        held.document.shards == len(before) for held in before.values()
    )


def _kept(turn: Turn, standing: Standing, published: Endpoint | None) -> Endpoint | None:
    """What was published of a replica, while a node of it is not known."""
    nodes = [plan.node for plan in standing.document.shards]
    return published if any(is_unknown_node(turn.state, node) for node in nodes) else None


def _endpoint(turn: Turn, standing: Standing, published: Endpoint | None) -> Endpoint | None:
    """The very endpoint that is published, if it still says what is so."""
    head = standing.head
    if head is None or not standing.serving:
        return None
    replica, shard = standing.document, head.document
    info = turn.state.info(shard.node)
    launch = turn.launch_of(replica, replica.shards[0])
    if info is None or launch is None:
        return None
    found = Endpoint(
        replica=replica.id,
        incarnation=phases.incarnation(shard),
        address=joined(info.document.address, shard.port),
        node=shard.node,
        kind=launch.kind,
        metrics=launch.metrics,
        unrouted=replica.goal != "run",
        last_choice=not standing.alive,
    )
    return published if published == found else found


def _cut(model: ModelName, endpoints: Sequence[Endpoint]) -> list[EndpointShard]:
    count = 1
    while True:
        cut: list[list[Endpoint]] = [[] for _ in range(count)]
        for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.replica):
            cut[shard_of(endpoint.replica, count)].append(endpoint)
        if max(len(part) for part in cut) <= subjects.ENDPOINTS_PER_SHARD:
            return [
                EndpointShard(model=model, shard=n, shards=count, endpoints=tuple(part))
                for n, part in enumerate(cut)
            ]
        count *= 2


def shard_of(replica: ReplicaId, shards: int) -> int:
    """Which of a model's endpoint documents holds the replica."""
    return int.from_bytes(hashlib.sha256(replica.encode()).digest()[:8]) % shards


def _cause(turn: Turn, held: Held[EndpointShard] | None, after: EndpointShard) -> EventId | None:
    """The event behind the first endpoint that differs."""
    old = {} if held is None else {e.replica: e for e in held.document.endpoints}
    new = {e.replica: e for e in after.endpoints}
    for replica in sorted(old.keys() | new.keys()):
        if old.get(replica) != new.get(replica):
            return _cause_of(turn, after.model, replica, old.get(replica), new.get(replica))
    return None


def _cause_of(
    turn: Turn, model: ModelName, replica: ReplicaId, old: Endpoint | None, new: Endpoint | None
) -> EventId | None:
    standing = next((s for s in turn.standings.get(model, []) if s.id == replica), None)
    if standing is None:
        return None
    reported = None if standing.head is None else standing.head.event
    if old is None or new is None:
        return standing.event if standing.gone else reported
    if old.unrouted != new.unrouted:
        return standing.event
    if old.last_choice != new.last_choice:
        return turn.verdict(new.node).event
    return reported
