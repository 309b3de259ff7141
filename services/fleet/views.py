"""Everything shown is computed here, once: tables and the status page, from state alone.

`Live` is what only the answering process knows: who beats. It is shown, and never folded.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from schemas.api import (
    CardRow,
    ModelCondition,
    ModelRow,
    NodeRow,
    ReplicaRow,
    ShardRow,
    Status,
)
from schemas.catalog import Model
from schemas.documents import (
    NodeInfo,
    NodeRefusal,
    ReplicaDocument,
    RouterReport,
    ShardPlan,
    ShardStatus,
)
from schemas.following import AgentsFollowing, ControlRow, RouterRow
from schemas.ids import EngineName, GpuUuid, ModelName, NodeId, ReplicaId, RouterId
from schemas.recovery import Damage, Moving
from services.fleet import phases
from services.fleet.braking import brake_attention, brake_row
from services.fleet.catalog import Catalog
from services.fleet.following import late_attention, lead_attention, leader_since
from services.fleet.idle import Idle, IdleFor, as_number, idle
from services.fleet.remedies import Remedies
from services.fleet.standing import (
    Standing,
    holding,
    is_removed,
    recorded_verdict,
    recorded_verdicts,
    stand_all,
)
from services.fleet.state import FleetState, Held

Holders = dict[tuple[NodeId, GpuUuid], ReplicaId]
"""Who holds each card."""


class Live(Struct, frozen=True, kw_only=True):
    """What the answering process measures."""

    now: float
    """Seconds since 1970, the fleet's clock."""
    leading: bool = False
    leader: str = ""
    damage: Damage | None = None
    moving: Moving | None = None
    """A recovery under way: nothing is decided before its log has a catalog."""
    controls: tuple[ControlRow, ...] = ()
    routers: tuple[RouterRow, ...] = ()
    agents: AgentsFollowing = AgentsFollowing()
    damaged_agents: Mapping[NodeId, str] = {}
    """Why an agent acts on no assignment, where it says so."""
    doubted: tuple[str, ...] = ()
    """What programs say of the log and is not believed."""
    warnings: tuple[str, ...] = ()
    catalog_refused: str = ""
    """Why the catalog in the log is refused by this version; empty: it is not."""
    deciding_fails: str = ""
    """Why the leader's last pass could not be made; empty: it was."""


def status(state: FleetState, catalog: Catalog, live: Live) -> Status:
    """The fleet in one page."""
    node_rows, replica_rows = nodes(state, live), replicas(state, live)
    model_rows = models(state, catalog)
    pointer, brake = state.catalog.get(()), brake_row(state)
    refused = (live.catalog_refused,) if live.catalog_refused else ()
    return Status(
        as_of_seq=state.sequence,
        log=state.log_id or "",
        leader=live.leader,
        leader_since=leader_since(state),
        leading=live.leading,
        damage=live.damage,
        recovering=live.moving is not None,
        halted=state.halted() + refused + _failing(live.deciding_fails) + _moving(live.moving),
        warnings=live.warnings + _storage_warnings(state),
        catalog_revision=0 if pointer is None else pointer.document.revision,
        nodes=_count(row.condition for row in node_rows),
        models=_count(row.condition for row in model_rows),
        replicas=_count(row.phase for row in replica_rows),
        attention=(
            *brake_attention(brake),
            *live.doubted,
            *_unread_attention(state),
            *_models_attention(model_rows),
            *_nodes_attention(node_rows),
            *lead_attention(live.leader, live.controls),
            *_routers_attention(live.routers),
            *late_attention(live.controls, live.routers, live.agents),
            *_replicas_attention(replica_rows),
        ),
        controls=live.controls,
        routers=live.routers,
        agents=live.agents,
        brake=brake,
    )


def nodes(state: FleetState, live: Live) -> tuple[NodeRow, ...]:
    """All nodes by name."""
    infos = sorted((held.document for held in state.infos.values()), key=lambda info: info.node)
    holders = _card_holders(holding(state), state.replicas.values())
    replicas_on = Counter(
        node for held in state.replicas.values() for node in _nodes_of(held.document)
    )
    return tuple(
        _node(state, info, holders, replicas_on[info.node], live.damaged_agents.get(info.node, ""))
        for info in infos
    )


def node(state: FleetState, live: Live, name: NodeId) -> NodeRow | None:
    """One of them, for less than the price of all. None: no agent describes it."""
    held = state.info(name)
    if held is None:
        return None
    there = [each for each in state.replicas.values() if name in _nodes_of(each.document)]
    holders, damaged = _card_holders(holding(state, name), there), live.damaged_agents.get(name, "")
    return _node(state, held.document, holders, len(there), damaged)


def replicas(
    state: FleetState, live: Live, model: ModelName | None = None
) -> tuple[ReplicaRow, ...]:
    """All replicas, or those of one model, by model and slot."""
    standings = stand_all(state, {}, recorded_verdicts(state), model)
    routed, told, heard = _routed(state), _reports(state), _heard(live)
    return tuple(
        _replica(
            state,
            standing,
            routed=standing.id in routed,
            idleness=idle(standing.document, told, heard, live.now),
        )
        for _, of_model in sorted(standings.items())
        for standing in of_model
    )


def models(state: FleetState, catalog: Catalog) -> tuple[ModelRow, ...]:
    """All models of the catalog by name, and those that are on their way out."""
    by_model = stand_all(state, catalog.models, recorded_verdicts(state))
    names = sorted(catalog.models.keys() | by_model.keys())
    return tuple(_model(state, catalog, name, by_model.get(name, [])) for name in names)


def model(state: FleetState, catalog: Catalog, name: ModelName) -> ModelRow | None:
    """One of them, for less than the price of all. None: there is no such model."""
    standings = stand_all(state, catalog.models, recorded_verdicts(state), name).get(name, [])
    if name not in catalog.models and not standings:
        return None
    return _model(state, catalog, name, standings)


def _nodes_of(replica: ReplicaDocument) -> set[NodeId]:
    return {plan.node for plan in replica.shards}


def _node(
    state: FleetState, info: NodeInfo, holders: Holders, replicas_here: int, damaged: str
) -> NodeRow:
    verdict = recorded_verdict(state, info.node)
    return NodeRow(
        node=info.node,
        condition=verdict.condition,
        condition_since="" if verdict.document is None else verdict.document.since,
        address=info.address,
        fabric=info.fabric,
        cores=info.cores,
        memory_bytes=info.memory_bytes,
        cards=tuple(
            CardRow(
                uuid=card.uuid,
                gpu_class=card.gpu_class,
                health=card.health,
                reason=card.reason,
                replica=holders.get((info.node, card.uuid)),
            )
            for card in info.cards
        ),
        engines={engine.name: engine.version for engine in info.engines},
        replicas=replicas_here,
        agent_version=info.agent_version,
        engines_survive_agent=info.engines_survive_agent,
        cards_fault=info.cards_fault,
        damaged=damaged,
    )


def _card_holders(
    reported: Iterable[Held[ShardStatus]], decided: Iterable[Held[ReplicaDocument]]
) -> Holders:
    """Replica documents, and shard documents that hold them, name the cards that are held."""
    holders: Holders = {}
    for shard in reported:
        for gpu in shard.document.gpus:
            holders[shard.document.node, gpu] = shard.document.replica
    for replica in decided:
        for plan in replica.document.shards:
            holders |= dict.fromkeys(((plan.node, gpu) for gpu in plan.gpus), replica.document.id)
    return holders


def _replica(state: FleetState, standing: Standing, *, routed: bool, idleness: Idle) -> ReplicaRow:
    replica = standing.document
    return ReplicaRow(
        replica=replica.id,
        model=replica.model,
        phase=phases.phase(standing),
        goal=replica.goal,
        revision=replica.revision,
        attempt=replica.attempt,
        since=replica.since,
        shards=tuple(
            _shard(plan, None if held is None else held.document)
            for plan, held in zip(replica.shards, standing.current, strict=True)
        ),
        address=_address(state, replica.shards[0]),
        routed=routed,
        idle_seconds=as_number(idleness),
        idle_at_least=isinstance(idleness, IdleFor) and idleness.at_least,
        reason=_replica_reason(state, standing),
    )


def _shard(plan: ShardPlan, shard: ShardStatus | None) -> ShardRow:
    if shard is None:
        return ShardRow(
            node=plan.node, rank=plan.rank, gpus=plan.gpus, port=plan.port, phase="placed"
        )
    return ShardRow(
        node=plan.node,
        rank=plan.rank,
        gpus=plan.gpus,
        port=plan.port,
        phase=shard.phase,
        run=shard.run,
        failures=shard.failures,
        retry_at=shard.retry_at,
        progress=shard.progress,
        error=shard.error,
        engine_version=shard.engine_version,
    )


def _reports(state: FleetState) -> Sequence[RouterReport]:
    """As they stand in the log."""
    ordered = sorted(state.routers.values(), key=lambda held: held.sequence)
    return [held.document for held in ordered]


def _heard(live: Live) -> frozenset[tuple[RouterId, str]]:
    return frozenset((row.router, row.incarnation) for row in live.routers)


def _address(state: FleetState, head: ShardPlan) -> str:
    info = state.info(head.node)
    return "" if info is None else f"{info.document.address}:{head.port}"


def _routed(state: FleetState) -> frozenset[ReplicaId]:
    """Replicas that routers may choose for new requests."""
    return frozenset(
        endpoint.replica
        for held in state.endpoints.values()
        for endpoint in held.document.endpoints
        if not endpoint.unrouted
    )


def _replica_reason(state: FleetState, standing: Standing) -> str:
    if standing.untouchable:
        return "what the log holds of it could not be read"
    for plan in standing.document.shards:
        if is_removed(state, plan.node):
            return f"node {plan.node} was removed"
        if (condition := recorded_verdict(state, plan.node).condition) != "alive":
            return f"node {plan.node} is {condition}"
    for held in standing.current:
        if held is not None and (error := held.document.error) is not None:
            return f"{error.failure}: {error.message}"
    return standing.document.reason


def _model(
    state: FleetState, catalog: Catalog, name: ModelName, standings: Sequence[Standing]
) -> ModelRow:
    model = catalog.models.get(name)
    if model is None:
        return ModelRow(
            model=name,
            condition="draining",
            engine=EngineName(""),
            wanted=0,
            ready=0,
            replicas=len(standings),
            reason="not in the catalog",
        )
    ready = sum(standing.counts and standing.ready for standing in standings)
    condition, reason = _model_condition(state, model, standings, ready)
    return ModelRow(
        model=name,
        condition=condition,
        engine=model.profile.engine.name,
        wanted=model.replicas,
        ready=ready,
        replicas=len(standings),
        aliases=model.aliases,
        hidden=model.hidden,
        reason=reason,
    )


def _model_condition(
    state: FleetState, model: Model, standings: Sequence[Standing], ready: int
) -> tuple[ModelCondition, str]:
    """The condition, and the reason where it is not what the catalog wants."""
    if model.replicas == 0:
        return ("draining", "replicas: 0") if standings else ("stopped", "replicas: 0")
    if ready >= model.replicas:
        return "ready", ""
    failed = [standing for standing in standings if phases.phase(standing) == "failed"]
    unheard = [standing for standing in standings if not standing.alive]
    placement = state.placement(model.name)
    pending = placement is not None and placement.document.verdict == "unplaceable"
    reason = next((_replica_reason(state, standing) for standing in failed + unheard), "")
    if pending and placement is not None:
        reason = "; ".join(_refusal(refusal) for refusal in placement.document.refusals) or reason
    if ready > 0 or any(standing.counts and standing.serving for standing in standings):
        return "degraded", reason  # One whose node is not heard may still answer.
    if failed:
        return "failed", reason
    return ("pending", reason) if pending else ("starting", reason)


def _refusal(refusal: NodeRefusal) -> str:
    if refusal.nodes == 0:
        return refusal.detail  # It is about the fleet, not about any node of it.
    return f"{refusal.nodes} x {refusal.reason}" + (
        f" ({refusal.detail})" if refusal.detail else ""
    )


def _models_attention(rows: Iterable[ModelRow]) -> Iterable[str]:
    for model in rows:
        if model.condition in ("failed", "pending", "degraded"):
            yield (
                f"model {model.model} is {model.condition}, "
                f"{model.ready} of {model.wanted} ready: {model.reason or 'see replicas'}"
            )


def _nodes_attention(rows: Iterable[NodeRow]) -> Iterable[str]:
    for node in rows:
        if node.condition != "alive":
            yield f"node {node.node} is {node.condition} since {node.condition_since}"
        if node.damaged:
            yield f"node {node.node} acts on no assignment: {node.damaged}"
        if node.cards_fault:
            yield f"cards of node {node.node} could not be read: {node.cards_fault}"
        for card in node.cards:
            if card.health in ("unhealthy", "unknown"):
                yield f"card {card.uuid} on {node.node} is {card.health}: {card.reason}"


def _routers_attention(rows: Iterable[RouterRow]) -> Iterable[str]:
    for router in rows:
        if router.damaged:
            yield f"router {router.router} follows no log: {router.damaged}"


def _replicas_attention(rows: Iterable[ReplicaRow]) -> Iterable[str]:
    for replica in rows:
        if replica.phase == "failed":
            yield f"replica {replica.replica} failed: {replica.reason}"


def _unread_attention(state: FleetState) -> Iterable[str]:
    remedies = Remedies(state)
    for subject, bad in sorted(state.unreadable.items()):
        told = f"{subject} is unreadable at sequence {bad.sequence}: {bad.reason}"
        yield f"{told}; {remedies.of(subject).told}"
    for subject, newer in sorted(state.unknown.items()):
        if not newer.optional:
            told = f"{subject} holds {newer.type} v{newer.version}, and nothing is decided"
            yield f"{told}; {remedies.of(subject).told}"


def _failing(reason: str) -> tuple[str, ...]:
    told = f"no decision can be made, all goes on as it runs: {reason}; the log of control has more"
    return (told,) if reason else ()


def _moving(moving: Moving | None) -> tuple[str, ...]:
    """Why nothing is decided while a lost log is replaced."""
    if moving is None:
        return ()
    made = f" from {moving.told}" if moving.told else ""
    came = f"; moved over: {', '.join(moving.moved)}" if moving.moved else ""
    head = f"log {moving.log} goes on from {moving.parent}{made}{came}"
    return (head, *(f"the recovery waits for {line}" for line in moving.waits_for))


def _storage_warnings(state: FleetState) -> tuple[str, ...]:
    """Where an agent restart would stop engines."""
    return tuple(
        f"node {held.document.node}: engines end when its agent ends"
        for _, held in sorted(state.infos.items())
        if not held.document.engines_survive_agent
    )


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
