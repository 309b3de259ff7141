"""What was begun by a lost log and runs on, though this log knows nothing of it: taken over. Pure.

After a recovery agents may come back that it did not hear, and run what it could not know. Nobody
ordered that ended: a shard that is on its way or serves, of a model in the catalog, becomes a replica in
its old place. Are there too many of the model then, it is one of those to choose from, and drains as
any other does (`rollout.py`).

Which ids a lost log may have given is told by their slots: a log after a recovery gives none below
`first_slot`. What this log has ended, or knows under a later generation, stays ended; so does part of a
gang, with which nobody can serve. An attempt later than the known one was begun by the lost log too.

Agents say what they run before they say what they are (`services.agent.loop`): so a node is never
taken for empty. What it is told for the first time in such a log waits until it was heard here.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import ReplicaDocument, ShardPhase, ShardPlan, ShardStatus
from schemas.ids import NodeId, ReplicaId, ReplicaParts, parse_replica, replica_parts, token
from services.control.deciding.drafts import Order
from services.control.deciding.turn import Turn
from services.fleet.standing import Standing, patience_of, reports, stand
from services.fleet.state import FleetState, Held

SLOTS_A_LOG = 100_000
"""No model ever has so many replicas at a time: each log has slots of its own."""
ADOPTED = "adopted: it was begun by a lost log"
_ENDING: tuple[ShardPhase, ...] = ("stopping", "stopped")


def first_slot(state: FleetState) -> int:
    """Of a replica that this log begins. After a recovery it lies above all that lost logs may have
    given: nobody knows which ids they used, and none is used twice."""
    genesis = state.genesis.get(())
    lost = 0 if genesis is None else len(genesis.document.ancestors)
    return lost * SLOTS_A_LOG


def may_be_told(turn: Turn, node: NodeId) -> bool:
    """Its first assignment of a log after a recovery: it has told this log what it runs, and that is
    judged. What a recovery carried over may be older than what the node runs."""
    if node in turn.withheld:
        return False
    told = turn.state.assignment(node) is not None or not first_slot(turn.state)
    return told or node in turn.silence.nodes


def adopt(turn: Turn) -> None:
    """Take over what runs and is not known, or not in this attempt."""
    if not first_slot(turn.state):
        return
    for replica, shards in _unknown(turn):
        model = turn.model(shards[0].document.model)
        if (
            turn.models is None
        ):  # Nothing can be said of it: it runs on, and its node is told nothing.
            turn.withheld.update(held.document.node for held in shards)
        elif model is not None:
            _take(turn, model, replica, shards)
    for standings in turn.standings.values():
        for standing in standings:
            if any(held.document.attempt > standing.document.attempt for held in standing.shards):
                _catch_up(turn, standing)


def _unknown(turn: Turn) -> Iterator[tuple[ReplicaId, list[Held[ShardStatus]]]]:
    """What lost logs began, this log never named, and is not about to end."""
    state, first = turn.state, first_slot(turn.state)
    decided = {held.document.id for held in state.replicas.values()}
    for replica in sorted(state.shards_by_replica.keys() - decided):
        parts = parse_replica(replica)  # An agent's word: it may be anything.
        if parts is None or parts.slot >= first or replica in turn.told:
            continue
        live = [held for held in reports(state, replica) if held.document.phase not in _ENDING]
        if live:
            yield replica, live


def _take(turn: Turn, model: Model, replica: ReplicaId, shards: list[Held[ShardStatus]]) -> None:
    members, parts = _members(shards, model.profile.nodes), replica_parts(replica)
    standings = turn.standings.setdefault(model.name, [])
    is_its_own = parts.model == token(model.name)
    if not members or not is_its_own or not _is_free(turn, standings, parts):
        return
    document = ReplicaDocument(
        id=replica,
        model=model.name,
        slot=parts.slot,
        generation=parts.generation,
        revision=turn.revision,
        profile_hash=model.profile_hash,
        attempt=members[0].document.attempt,
        shards=tuple(_plan(held.document, _needed(model)) for held in members),
        goal="run",
        since=codec.rfc3339(turn.now),
        reason=ADOPTED,
    )
    held = _write(turn, document, members)
    standings.append(stand(turn.state, held, turn.verdicts, patience_of(model)))
    standings.sort(key=lambda standing: standing.document.slot)


def _is_free(turn: Turn, standings: Sequence[Standing], wanted: ReplicaParts) -> bool:
    """Its slot holds nothing, or what an older generation left: that was over when it was begun."""
    subject = subjects.replica_slot(wanted)
    if subject in turn.state.unreadable:
        return False
    gone = turn.state.gone.get(subject)
    if gone is not None:
        return replica_parts(ReplicaId(gone.document.id)).generation < wanted.generation
    for standing in standings:
        if standing.document.slot == wanted.slot:
            if standing.untouchable or standing.document.generation > wanted.generation:
                return False
            standing.gone = True
    return True


def _catch_up(turn: Turn, standing: Standing) -> None:
    members = _members(standing.shards, len(standing.document.shards))
    slot, known = standing.document.slot, standing.document.attempt
    if slot >= first_slot(turn.state) or standing.gone or standing.untouchable or not members:
        return
    attempt = members[0].document.attempt
    if attempt <= known:
        return
    plans = zip(members, standing.document.shards, strict=True)
    shards = tuple(_plan(held.document, plan) for held, plan in plans)
    document = replace(standing.document, attempt=attempt, shards=shards)
    standing.becomes(document, _write(turn, document, members).event)


def _members(shards: Iterable[Held[ShardStatus]], nodes: int) -> list[Held[ShardStatus]]:
    """Of the newest attempt, one of each rank; empty: one is missing."""
    live = [held for held in shards if held.document.phase not in _ENDING]
    newest = max((held.document.attempt for held in live), default=0)
    members = sorted(
        (held for held in live if held.document.attempt == newest),
        key=lambda held: held.document.rank,
    )
    return members if [held.document.rank for held in members] == list(range(nodes)) else []


def _needed(model: Model) -> ShardPlan:
    """What a shard of it holds beside its cards."""
    cpu = model.profile.cpu
    return ShardPlan(
        node=NodeId(""),
        rank=0,
        port=0,
        cores=0.0 if cpu is None else cpu.cores,
        memory_bytes=0 if cpu is None else cpu.memory_bytes,
    )


def _plan(shard: ShardStatus, known: ShardPlan) -> ShardPlan:
    return replace(
        known,
        node=shard.node,
        rank=shard.rank,
        gpus=shard.gpus,
        port=shard.port,
        rendezvous_port=shard.rendezvous_port,
    )


def _write(
    turn: Turn, document: ReplicaDocument, members: Sequence[Held[ShardStatus]]
) -> Held[ReplicaDocument]:
    report = max(members, key=lambda held: held.sequence).event
    subject = subjects.replica(document.model, document.slot)
    event = turn.drafts.put(Order.TAKE, subject, "replica.adopted", document, cause=report)
    turn.adopted[document.id] = report
    return Held(turn.state.sequence, event, "replica.adopted", document.since, document)
