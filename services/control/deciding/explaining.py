"""Why a model's replicas are where they are, or nowhere. Pure: the placer's own predicates, asked aloud."""

from itertools import chain

from schemas.api import Explanation
from schemas.catalog import Model
from schemas.documents import PlacementVerdict
from services.control.deciding import brake
from services.control.deciding.candidates import Fits, Placed
from services.control.deciding.placement import RULES, explain, place
from services.control.deciding.refusals import describe
from services.control.deciding.rollout import counted, to_place
from services.control.deciding.room import Room
from services.fleet.standing import Standing, recorded_verdicts, stand_all
from services.fleet.state import FleetState


def explain_model(state: FleetState, model: Model) -> Explanation:
    """The recorded decision, and what each node would answer now."""
    verdicts = recorded_verdicts(state)
    standings = stand_all(state, {model.name: model}, verdicts)
    own = standings.get(model.name, [])
    room = Room(state, verdicts, lambda: chain.from_iterable(standings.values()))
    answers = explain(model, room.candidates)
    held = state.placement(model.name)
    recorded = None if held is None else held.document
    return Explanation(
        as_of_seq=state.sequence,
        model=model.name,
        decided="nothing yet" if recorded is None else recorded.verdict,
        decided_at_seq=0 if recorded is None else recorded.seen,
        rules=RULES if recorded is None else recorded.rules,
        wanted=model.replicas,
        placed=len(counted(model, own).all),
        candidates={
            node: "fits" if isinstance(answer, Fits) else describe(answer)
            for node, answer in answers.items()
        },
        refusals=() if recorded is None else recorded.refusals,
        now=_now(model, own, room, recorded, braked=brake.is_on(state)),
    )


def _now(
    model: Model,
    own: list[Standing],
    room: Room,
    recorded: PlacementVerdict | None,
    *,
    braked: bool,
) -> str:
    missing = to_place(model, own, braked=braked)
    if missing < to_place(model, own):
        return "the brake is on: what stood on lost nodes is not placed again"
    if missing == 0:
        return "nothing is missing; another replica would go " + _where(model, room)
    word = "" if recorded is None or recorded.rules == RULES else f" (by rules {RULES})"
    return f"{missing} to place; the next would go {_where(model, room)}{word}"


def _where(model: Model, room: Room) -> str:
    found = place(model, room.candidates)
    if not isinstance(found, Placed):
        return "nowhere"
    return "to " + ", ".join(shape.node for shape in found.shards)
