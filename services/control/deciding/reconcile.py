"""decide: out of the fleet's state, the catalog and who is silent, what to write next. Pure.

Level-triggered: it looks at what is, never at what changed. Fold what it returned and ask again with
the same silence and time, and there is nothing more. It reads the state and keeps its own overlay of
what this pass changed (`Turn`). Nothing depends on the order of a dict.

The rules, in this order:

1. Verdicts. Nodes become alive, unreachable or lost by their silence (`verdicts.py`); while the
   mass-silence brake is on (`brake.py`), none becomes lost. Everything below sees the new verdicts. A
   node that no agent describes any more counts as lost.
   Then what lost logs began and this one does not know is taken over (`adopting.py`).
2. Ended. A replica that was to run and whose agents stopped it will not be started by them again: it
   is gone, and counts as missing.
3. Given up. A replica on a lost node does not count. It stays as it is, endpoint included, until as
   many others are ready as the catalog wants; then it is gone. Its shard document alone goes on
   holding its cards, until the node says stopped or is removed. While the brake is on, none is given
   up, and those that do not count are not rebuilt.
4. Retired. Replicas of models that left the catalog, old ones that a roll no longer needs, and those
   above the wanted number (a node that came back: not ready first, then the newest). One that serves
   drains: unrouted first, then finished by its agent by the deadline. One that does not serve stops
   at once.
5. Over. A replica that is to end is gone when no agent has anything of it left: its shards are
   stopped, or nothing was heard of it for 10 s after the end was decided, or its node is lost.
6. Placed. What is missing is placed in the room that is left (`placement.py`); a roll adds one above
   the wanted number where that fits, else it drains an old one if `min_ready` allows. A port that
   was found taken is replaced by the next one, as a new attempt, with growing pauses and only so often
   (`placing.py`). Slots are used again, lowest first, under the next generation, so that no replica id
   ever comes back.
7. Endpoints follow from what is ready and what is to end (`publish.py`), assignments from the
   replicas and from what routers have applied (`assign.py`), and a model's placement verdict is
   written when it, its counts or its main reason changes.

A refused catalog (`models` is None): 2, 3, 4 and 6 are left out; what runs goes on, and nodes that run
what would be taken over are told nothing.
Other orphans, shards that agents report and no decision knows, need no rule of their own: they stand
in no assignment, which tells the agent to stop them, and hold their cards until it has.
"""

from collections.abc import Mapping

from msgspec import Struct

from schemas import subjects
from schemas.catalog import Model
from schemas.ids import ModelName, NodeId
from services.control.deciding import brake
from services.control.deciding.adopting import adopt
from services.control.deciding.assign import assign, told
from services.control.deciding.drafts import Draft, Drafts, Order
from services.control.deciding.ending import bury_finished, end_unwanted
from services.control.deciding.placing import place_missing
from services.control.deciding.publish import publish
from services.control.deciding.rollout import counted
from services.control.deciding.silence import Silence
from services.control.deciding.turn import Turn
from services.control.deciding.verdicts import SMALL_FLEET, judge, next_change
from services.fleet.standing import DEFAULT_PATIENCE_SECONDS, NEVER_JUDGED, Verdict, stand_all
from services.fleet.state import FleetState


class Counts(Struct, frozen=True):
    """Replicas after the pass, for metrics."""

    wanted: int
    counted: int
    ready: int
    unplaceable_models: int


class Decision(Struct, frozen=True):
    """What to write, in an order in which every prefix is safe."""

    drafts: tuple[Draft, ...]
    wake_at: float | None
    """Seconds since 1970, the fleet's clock: ask again then even if nothing happens; None: no need."""
    counts: Counts


def decide(
    state: FleetState,
    models: Mapping[ModelName, Model] | None,
    silence: Silence,
    now: float,
    revision: int | None = None,
) -> Decision:
    """One pass over the whole fleet. `now` is the fleet's clock, seconds since 1970.

    `revision`: that `models` are of; None: the one that the pointer names.
    """
    pointer = state.catalog.get(())
    turn = Turn(
        state=state,
        models=models,
        silence=silence,
        now=now,
        drafts=Drafts(state),
        verdicts={},
        standings={},
        told=told(state),
        past={},
        revision=revision or (0 if pointer is None else pointer.document.revision),
        adopted={},
        withheld=set(),
        waits=[],
    )
    _judge(turn)
    _read_replicas(turn)
    adopt(turn)
    if models is not None:
        end_unwanted(turn, models)
    bury_finished(turn)
    unplaceable = 0 if models is None else place_missing(turn, models)
    publish(turn)
    assign(turn)
    return Decision(
        turn.drafts.ordered(),
        min((now + wait for wait in turn.waits), default=None),
        _counts(turn, unplaceable),
    )


def _judge(turn: Turn) -> None:
    """Rule 1."""
    fleet = _brake(turn)
    small = fleet.nodes + fleet.aside <= SMALL_FLEET
    patiences = {} if turn.braked else _patiences(turn)
    default = set[float]() if turn.braked else {DEFAULT_PATIENCE_SECONDS}
    least = turn.silence.least_seconds
    longest = None
    for _, info in sorted(turn.state.infos.items()):
        node = info.document.node
        held = turn.state.verdict(node)
        before = None if held is None else held.document
        seconds = turn.silence.of(node)
        if seconds < least and (before is None or before.condition == "alive"):
            # Nearly every node in nearly every pass: what the rest would say of it, at less cost.
            turn.verdicts[node] = NEVER_JUDGED if held is None else Verdict(before, held.event)
            longest = seconds if longest is None else max(longest, seconds)
            continue
        now = judge(
            node,
            before,
            turn.silence,
            patiences.get(node, default),
            needs_probe=small,
            now=turn.now,
        )
        wait = next_change(node, turn.silence, patiences.get(node, default))
        turn.waits += [] if wait is None else [wait]
        if now == before or (before is None and now.condition == "alive"):
            turn.verdicts[node] = Verdict(before, None if held is None else held.event)
            continue
        event = turn.drafts.put(
            Order.VERDICT, subjects.node_verdict(node), f"node.{now.condition}", now
        )
        turn.verdicts[node] = Verdict(now, event)
    turn.waits += [] if longest is None else [least - longest]


def _brake(turn: Turn) -> brake.Fleet:
    """Whether nobody may be lost in this pass."""
    found = brake.look(turn.state, turn.silence, turn.now)
    turn.braked = found.on
    turn.waits += [] if found.wait is None else [found.wait]
    if found.written is not None:
        turn.drafts.put(Order.VERDICT, subjects.CONTROL_BRAKE, found.label, found.written)
    return found.fleet


def _patiences(turn: Turn) -> dict[NodeId, set[float]]:
    """The patience of every model that has a replica on the node, and the default one; of nodes that
    have no other than the default one, nothing."""
    found: dict[NodeId, set[float]] = {}
    patiences = {name: model.patience_seconds for name, model in (turn.models or {}).items()}
    for held in turn.state.replicas.values():
        replica = held.document
        patience = patiences.get(replica.model, DEFAULT_PATIENCE_SECONDS)
        if patience is None or patience == DEFAULT_PATIENCE_SECONDS:
            continue
        for plan in replica.shards:
            found.setdefault(plan.node, {DEFAULT_PATIENCE_SECONDS}).add(patience)
    return found


def _read_replicas(turn: Turn) -> None:
    turn.standings = stand_all(turn.state, turn.models or {}, turn.verdicts)


def _counts(turn: Turn, unplaceable: int) -> Counts:
    models: Mapping[ModelName, Model] = {} if turn.models is None else turn.models
    each = [counted(model, turn.standings.get(name, [])) for name, model in models.items()]
    return Counts(
        wanted=sum(model.replicas for model in models.values()),
        counted=sum(len(found.all) for found in each),
        ready=sum(found.ready for found in each),
        unplaceable_models=unplaceable,
    )
