"""Which endpoint a request goes to, or none. Pure: clock and chance are handed in.

Least loaded first, by the requests that this router has there and, where known and fresh, by what
the engine says of others' requests, of its queue and of its KV cache. A figure that is unknown for
some endpoint must neither draw requests there nor keep them away, so it counts as the mean of those
that are known. Equals are drawn by lot, so that routers which see the same figures do not all choose
the same endpoint.
"""

from collections.abc import Callable, Sequence
from random import Random  # noqa: TID251 - the type; an instance is handed in.

from services.router.endpoints import Figures, Route, Target

FRESH_SECONDS = 5.0
"""Figures older than this are unknown. Scrapes come once a second."""
SCAN_LIMIT = 16
SAMPLE = 8
"""Beyond SCAN_LIMIT endpoints, the best of so many drawn by lot: the cost stays the same."""


def pick(target: Target, tried: Sequence[Route], now: float, chance: Random) -> Route | None:
    """An endpoint that this request has not tried. `now` in monotonic seconds.

    Open breakers are passed over, unless nothing else is left: then the one that failed longest ago.
    """
    for group in (target.first, target.last):
        usable = _usable(group, tried, now, chance)
        if usable:
            return _least_loaded(_elsewhere(usable, tried), now, chance)
    left = [route for route in (*target.first, *target.last) if _untried(route, tried)]
    return min(left, key=lambda route: route.live.breaker.failed_at, default=None)


def _usable(
    group: Sequence[Route], tried: Sequence[Route], now: float, chance: Random
) -> list[Route]:
    if len(group) > SCAN_LIMIT and (drawn := _allowed(chance.sample(group, SAMPLE), tried, now)):
        return drawn
    return _allowed(group, tried, now)


def _allowed(group: Sequence[Route], tried: Sequence[Route], now: float) -> list[Route]:
    return [r for r in group if r.live.breaker.allows(now) and _untried(r, tried)]


def _untried(route: Route, tried: Sequence[Route]) -> bool:
    return all(route.key != other.key for other in tried)


def _elsewhere(usable: list[Route], tried: Sequence[Route]) -> list[Route]:
    """Other nodes than those already tried, if there are any: a node dies as a whole."""
    if not tried:
        return usable
    nodes = {route.endpoint.node for route in tried}
    return [route for route in usable if route.endpoint.node not in nodes] or usable


def _least_loaded(usable: list[Route], now: float, chance: Random) -> Route:
    if len(usable) == 1:
        return usable[0]
    scores = score(usable, now)
    least = min(scores)
    best = [route for route, value in zip(usable, scores, strict=True) if value == least]
    return best[0] if len(best) == 1 else chance.choice(best)


def score(routes: Sequence[Route], now: float) -> list[float]:
    """Less is better; in requests. A full KV cache weighs as much as one request."""
    figures = [fresh(route.live.figures, now) for route in routes]
    scores = [float(route.live.in_flight) for route in routes]
    if any(each is not None for each in figures):
        for term in (_others, _waiting, _kv_usage):
            scores = [a + b for a, b in zip(scores, _known(figures, term), strict=True)]
    return scores


def fresh(figures: Figures | None, now: float) -> Figures | None:
    """Figures that are still worth something."""
    return figures if figures is not None and now - figures.at <= FRESH_SECONDS else None


def _others(figures: Figures) -> float | None:
    return figures.others


def _waiting(figures: Figures) -> float | None:
    return figures.waiting


def _kv_usage(figures: Figures) -> float | None:
    return figures.kv_usage


def _known(
    figures: Sequence[Figures | None], term: Callable[[Figures], float | None]
) -> list[float]:
    """One figure of every endpoint, the mean of the known ones where it is unknown."""
    values = [None if each is None else term(each) for each in figures]
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if value is None else value for value in values]
