"""What is started, and where: rule 6 of `reconcile.py`, and the placement verdicts. Pure."""

from collections.abc import Mapping
from itertools import chain, count

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import Gone, PlacementVerdict, ReplicaDocument, ShardPlan
from schemas.ids import EventId, ModelName, ReplicaId, replica_id, replica_parts
from services.control.deciding import rollout
from services.control.deciding.adopting import first_slot
from services.control.deciding.candidates import Placed
from services.control.deciding.drafts import Order
from services.control.deciding.ending import end
from services.control.deciding.placement import RULES, free_ports, place
from services.control.deciding.refusals import Unplaceable, summarize
from services.control.deciding.room import Room
from services.control.deciding.turn import Turn
from services.fleet.standing import Standing, lost_by

PORT_IN_USE = "port_in_use"
"""Failure class of a shard that found its port taken."""
MOST_PORTS = 8
"""A replica whose ports were found taken so often stays failed, with that reason."""
FIRST_PAUSE_SECONDS = 1.0
"""Between the second port of a replica and its third; doubled with each further one."""


def place_missing(turn: Turn, models: Mapping[ModelName, Model]) -> int:
    """Place what is missing. Returns how many models could not be placed."""
    room = Room(turn.state, turn.verdicts, lambda: chain.from_iterable(turn.standings.values()))
    for standing in turn.everyone:
        if not standing.serving:
            _replace_taken_port(turn, room, standing)
    unplaceable = 0
    for _, model in sorted(models.items()):
        refused = _place_model(turn, room, model)
        unplaceable += refused is not None
        _record(turn, model, refused)
    _forget_verdicts(turn, models)
    return unplaceable


def _replace_taken_port(turn: Turn, room: Room, standing: Standing) -> None:
    """Another port, as a new attempt: its node found this one in a stranger's hands."""
    replica, head = standing.document, standing.head
    if head is None or replica.goal != "run" or standing.untouchable or not standing.alive:
        return
    plan, error = replica.shards[0], head.document.error
    if head.document.phase != "failed" or error is None or error.failure != PORT_IN_USE:
        return
    if replica.taken_ports >= MOST_PORTS or not _has_paused(turn, replica):
        return
    candidate = room.candidate(plan.node)
    ports = [] if candidate is None else free_ports(candidate, 1, after=plan.port)
    if not ports or candidate is None:
        return
    candidate.ports_used.add(ports[0])
    document = replace(
        replica,
        attempt=replica.attempt + 1,
        shards=(replace(plan, port=ports[0]), *replica.shards[1:]),
        since=codec.rfc3339(turn.now),
        taken_ports=replica.taken_ports + 1,
    )
    _write(turn, standing, document, "replica.moved_port", head.event)


def _has_paused(turn: Turn, replica: ReplicaDocument) -> bool:
    """The first move is made at once: one stranger is nothing unusual, many are."""
    if replica.taken_ports == 0:
        return True
    pause = FIRST_PAUSE_SECONDS * 2.0 ** (replica.taken_ports - 1)
    left = codec.seconds(replica.since) + pause - turn.now
    if left > 0:
        turn.waits.append(left)
    return left <= 0


def _write(
    turn: Turn, standing: Standing, document: ReplicaDocument, label: str, cause: EventId | None
) -> None:
    event = turn.drafts.put(
        Order.TAKE, subjects.replica(document.model, document.slot), label, document, cause=cause
    )
    standing.becomes(document, event)


def _place_model(turn: Turn, room: Room, model: Model) -> Unplaceable | None:
    standings = turn.standings.setdefault(model.name, [])
    for _ in range(rollout.to_place(model, standings, braked=turn.braked)):
        found = place(model, room.candidates)
        if isinstance(found, Unplaceable):
            old = rollout.to_make_room(model, standings)
            if old is not None:
                end(turn, old, rollout.PROFILE_CHANGED)
            return found
        standing = _placed(turn, model, found, standings)
        standings.append(standing)
        room.take(standing.document)
    return None


def _placed(turn: Turn, model: Model, found: Placed, standings: list[Standing]) -> Standing:
    slot, generation = _free_slot(turn, model.name, standings)
    cpu = model.profile.cpu
    document = ReplicaDocument(
        id=replica_id(model.name, slot, generation),
        model=model.name,
        slot=slot,
        generation=generation,
        revision=turn.revision,
        profile_hash=model.profile_hash,
        attempt=1,
        shards=tuple(
            ShardPlan(
                node=shape.node,
                rank=rank,
                gpus=shape.gpus,
                port=shape.port,
                rendezvous_port=shape.rendezvous_port,
                cores=0.0 if cpu is None else cpu.cores,
                memory_bytes=0 if cpu is None else cpu.memory_bytes,
            )
            for rank, shape in enumerate(found.shards)
        ),
        goal="run",
        since=codec.rfc3339(turn.now),
    )
    cause = lost_by((s for s in standings if s.lost), turn.verdicts) or turn.pointer
    event = turn.drafts.put(
        Order.TAKE,
        subjects.replica(model.name, slot),
        "replica.placed",
        document,
        cause=cause,
        corr=turn.pointer if cause == turn.pointer else None,
    )
    return Standing(
        document=document, event=event, untouchable=False, shards=(), alive=True, lost=False
    )


def _free_slot(turn: Turn, model: ModelName, standings: list[Standing]) -> tuple[int, int]:
    """The lowest slot of this log that nothing names, and the generation that it has not had yet."""
    used = {s.document.slot for s in standings if not s.gone}
    ended = {s.document.slot: s.id for s in standings if s.gone}
    for slot in count(first_slot(turn.state)):
        subject = subjects.replica(model, slot)
        if slot in used or subject in turn.state.unreadable:
            continue
        gone = turn.state.gone.get(subject)
        last = ended.get(slot) or (None if gone is None else ReplicaId(gone.document.id))
        if last is None:
            return slot, 1
        if last not in turn.state.shards_by_replica:
            return slot, replica_parts(last).generation + 1
    raise AssertionError("unreachable")  # count() does not end.


def _record(turn: Turn, model: Model, refused: Unplaceable | None) -> None:
    """Write the verdict when it, its counts or its main reason changed.

    It stays as it is where the brake keeps something from being placed again: nothing was decided.
    """
    if turn.braked and rollout.waiting(turn.standings[model.name]):
        return
    counting = rollout.counted(model, turn.standings[model.name])
    document = PlacementVerdict(
        model=model.name,
        verdict="placed" if refused is None else "unplaceable",
        wanted=model.replicas,
        placed=min(len(counting.all), model.replicas),
        refusals=() if refused is None else summarize(refused),
        rules=RULES,
        seen=turn.state.sequence,
    )
    subject = subjects.placement(model.name)
    held = turn.state.placement(model.name)
    same = held is not None and _gist(held.document) == _gist(document)
    if same and subject not in turn.state.unreadable:
        return
    turn.drafts.put(
        Order.PLACEMENT, subject, f"placement.{document.verdict}", document, cause=turn.pointer
    )


def _gist(verdict: PlacementVerdict) -> tuple[str, int, int, str]:
    main = verdict.refusals[0].reason if verdict.refusals else ""
    return verdict.verdict, verdict.wanted, verdict.placed, main


def _forget_verdicts(turn: Turn, models: Mapping[ModelName, Model]) -> None:
    for _, held in sorted(turn.state.placements.items()):
        name = held.document.model
        if name not in models:
            turn.drafts.put(
                Order.PLACEMENT,
                subjects.placement(name),
                "placement.gone",
                Gone(id=name),
                cause=turn.pointer,
            )
