"""What control holds of each node: alive, unreachable or lost. Pure.

- heard within 5 s: alive;
- silent for 5 s: unreachable (its endpoints become the last choice);
- silent for a model's patience: lost for that model. `lost_patience_seconds` says which patience the
  silence has outlasted, so models that wait longer still wait. It never shrinks before the node is
  heard again. In a fleet of one or two nodes *lost* also needs a failed direct probe: perhaps only
  this process cannot hear.

A node that has not been heard since hearing began keeps the verdict it had until the silence is long
enough for another: a restart of control judges nobody afresh.
"""

from collections.abc import Iterable

from schemas import codec
from schemas.documents import NodeCondition, NodeVerdict
from schemas.ids import NodeId
from services.control.silence import UNREACHABLE_SECONDS, Silence

SMALL_FLEET = 2
"""At most so many nodes: silence alone does not make one lost."""


def judge(
    node: NodeId,
    before: NodeVerdict | None,
    silence: Silence,
    patiences: Iterable[float],
    *,
    needs_probe: bool,
    now: float,
) -> NodeVerdict:
    """The node's verdict now. `before` is the one that stands; None: never judged, so alive."""
    seconds = silence.of(node)
    was: NodeCondition = "alive" if before is None else before.condition
    if seconds < UNREACHABLE_SECONDS:
        is_now: NodeCondition = "alive" if node in silence.nodes else was
        outlasted = None if is_now != "lost" or before is None else before.lost_patience_seconds
        return _verdict(node, before, is_now, outlasted, now)
    believed = node in silence.unanswered or not needs_probe
    outlasted = _outlasted(before, seconds, patiences if believed else ())
    return _verdict(node, before, "unreachable" if outlasted is None else "lost", outlasted, now)


def _outlasted(
    before: NodeVerdict | None, seconds: float, patiences: Iterable[float]
) -> float | None:
    passed = [p for p in patiences if seconds >= max(p, UNREACHABLE_SECONDS)]
    if before is not None and before.lost_patience_seconds is not None:
        passed.append(before.lost_patience_seconds)
    return max(passed, default=None)


def _verdict(
    node: NodeId,
    before: NodeVerdict | None,
    condition: NodeCondition,
    outlasted: float | None,
    now: float,
) -> NodeVerdict:
    same = before is not None and before.condition == condition
    return NodeVerdict(
        node=node,
        condition=condition,
        since=before.since if same and before is not None else codec.rfc3339(now),
        lost_patience_seconds=outlasted,
    )


def next_change(node: NodeId, silence: Silence, patiences: Iterable[float]) -> float | None:
    """Seconds until the silence, if it lasts, leads to another verdict; None: never."""
    seconds = silence.of(node)
    ahead = [max(p, UNREACHABLE_SECONDS) - seconds for p in (UNREACHABLE_SECONDS, *patiences)]
    return min((wait for wait in ahead if wait > 0), default=None)
