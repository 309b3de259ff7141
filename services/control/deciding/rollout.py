"""Which replicas of one model to end, to give up and to add. Pure; reads standings, changes nothing.

A replica *counts* when it is to run and its node is not lost. Of those, *old* ones have another
profile than the catalog now wants. One that could not be read counts, but is never chosen to end.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from schemas.catalog import Model
from services.fleet.standing import Standing

PROFILE_CHANGED = "profile changed"
SURPLUS = "surplus"


class Counted(Struct, frozen=True):
    """The replicas of a model that count."""

    old: tuple[Standing, ...]
    new: tuple[Standing, ...]

    @property
    def all(self) -> tuple[Standing, ...]:
        return self.old + self.new

    @property
    def ready(self) -> int:
        return sum(standing.ready for standing in self.all)


def counted(model: Model, standings: Iterable[Standing]) -> Counted:
    """Those that are to run, on nodes that are not lost."""
    old: list[Standing] = []
    new: list[Standing] = []
    for standing in standings:
        if standing.counts:
            is_new = standing.document.profile_hash == model.profile_hash
            (new if is_new else old).append(standing)
    return Counted(tuple(old), tuple(new))


def _is_to_run(standing: Standing) -> bool:
    return standing.document.goal == "run" and not standing.gone


def to_give_up(model: Model, standings: Sequence[Standing]) -> list[Standing]:
    """Replicas on lost nodes for which others serve by now. Until then they may still answer."""
    missing = max(0, model.replicas - counted(model, standings).ready)
    lost = [s for s in waiting(standings) if not s.untouchable]
    lost.sort(key=lambda s: (not s.serving, s.document.slot))
    return lost[missing:]


def to_retire(model: Model, standings: Sequence[Standing]) -> list[tuple[Standing, str]]:
    """Replicas to end now, with the reason.

    Old ones that serve nobody go at once; old ones that do, also those on a node that is silent for
    now, only while as many as wanted are ready without them. Then new ones above the wanted number:
    not ready first, then the newest.
    """
    counting = counted(model, standings)
    retired = [s for s in counting.old if not s.serving and not s.untouchable]
    ready = counting.ready
    excess = len(counting.all) - len(retired) - model.replicas
    for standing in _worst_first(s for s in counting.old if s.serving):
        if excess > 0 and ready - standing.ready >= model.replicas:
            retired.append(standing)
            ready -= standing.ready
            excess -= 1
    most = len(counting.new) - model.replicas
    surplus = _worst_first(counting.new)[:most] if most > 0 else []
    return [(s, PROFILE_CHANGED) for s in retired] + [(s, SURPLUS) for s in surplus]


def _worst_first(standings: Iterable[Standing]) -> list[Standing]:
    """Not ready before ready, then newest first."""
    touchable = [s for s in standings if not s.untouchable]
    touchable.sort(key=lambda s: (s.document.since, s.document.slot), reverse=True)
    return sorted(touchable, key=lambda s: (s.ready, s.serving))


def to_place(model: Model, standings: Sequence[Standing], *, braked: bool = False) -> int:
    """How many to add: what is missing, and one above that while old ones are left to replace.

    While the brake is on, what stands on lost nodes is not missing: placing it is rebuilding.
    """
    counting = counted(model, standings)
    most = model.replicas + bool(counting.old)
    missing = min(most - len(counting.all), model.replicas - len(counting.new))
    return max(0, missing - (len(waiting(standings)) if braked else 0))


def waiting(standings: Iterable[Standing]) -> list[Standing]:
    """Replicas on lost nodes, neither given up nor ended."""
    return [s for s in standings if s.lost and _is_to_run(s)]


def to_make_room(model: Model, standings: Sequence[Standing]) -> Standing | None:
    """Where nothing more fits: an old one whose end makes room, if `min_ready` allows. One at a time."""
    counting = counted(model, standings)
    if any(s.document.goal != "run" and not s.gone for s in standings):
        return None
    least = model.replicas - 1 if model.min_ready is None else model.min_ready
    candidates = _worst_first(counting.old)
    if not candidates or counting.ready - candidates[0].serving < least:
        return None
    return candidates[0]
