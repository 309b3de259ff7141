"""What control holds of each node: alive, unreachable or lost. Pure.

- heard within 5 s (`control.unreachable-after`): alive;
- silent for longer: unreachable (its endpoints become the last choice). Where that is off, it stays
  alive until it is lost;
- silent for a model's patience: lost for that model. `lost_patience_seconds` says which patience the
  silence has outlasted, so models that wait longer still wait. It never shrinks before the node is
  heard again. In a fleet of one or two nodes *lost* also needs a failed direct probe: perhaps only
  this process cannot hear. While the brake is on (`brake.py`) nobody is lost, for no model.

A node that has not been heard since hearing began keeps the verdict it had until the silence is long
enough for another: a restart of control judges nobody afresh.
"""

from collections.abc import Iterable

from schemas import codec
from schemas.documents import NodeCondition, NodeVerdict
from schemas.ids import NodeId
from services.control.deciding.silence import Silence

SMALL_FLEET = 2
"""At most so many nodes, not counting those that have been lost for more than a minute: silence alone
makes none lost."""


def judge(
    node: NodeId,
    before: NodeVerdict | None,
    silence: Silence,
    patiences: Iterable[float],
    *,
    needs_probe: bool,
    now: float,
) -> NodeVerdict:
    """The node's verdict now. `before` is the one that stands; None: never judged, so alive.

    `patiences` are those that it may outlast: none while the brake is on.
    """
    seconds = silence.of(node)
    was: NodeCondition = "alive" if before is None else before.condition
    if seconds < silence.least_seconds:
        is_now: NodeCondition = "alive" if node in silence.nodes else was
        outlasted = None if is_now != "lost" or before is None else before.lost_patience_seconds
        return _verdict(node, before, is_now, outlasted, now, seconds)
    believed = node in silence.unanswered or not needs_probe
    outlasted = _outlasted(before, silence, seconds, patiences if believed else ())
    is_now = "unreachable" if silence.unreachable_after is not None or was != "alive" else "alive"
    return _verdict(node, before, is_now if outlasted is None else "lost", outlasted, now, seconds)


def _outlasted(
    before: NodeVerdict | None, silence: Silence, seconds: float, patiences: Iterable[float]
) -> float | None:
    passed = [p for p in patiences if seconds >= max(p, silence.least_seconds)]
    if before is not None and before.lost_patience_seconds is not None:
        passed.append(before.lost_patience_seconds)
    return max(passed, default=None)


def _verdict(
    node: NodeId,
    before: NodeVerdict | None,
    condition: NodeCondition,
    outlasted: float | None,
    now: float,
    seconds: float,
) -> NodeVerdict:
    same = before is not None and before.condition == condition
    return NodeVerdict(
        node=node,
        condition=condition,
        since=before.since if same and before is not None else codec.rfc3339(now),
        lost_patience_seconds=outlasted,
        silent_since=None if condition == "alive" else _silent_since(before, now - seconds),
    )


def _silent_since(before: NodeVerdict | None, began: float) -> str | None:
    """Known from the first verdict of a silence: later ones may be of a process that heard less of it."""
    if before is None or before.condition == "alive":
        return codec.rfc3339(began)
    return before.silent_since


def next_change(node: NodeId, silence: Silence, patiences: Iterable[float]) -> float | None:
    """Seconds until the silence, if it lasts, leads to another verdict; None: never."""
    seconds = silence.of(node)
    least = silence.least_seconds
    ahead = [max(p, least) - seconds for p in (least, *patiences)]
    return min((wait for wait in ahead if wait > 0), default=None)
