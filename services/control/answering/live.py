"""What only the answering process knows, for the pages of the management API: who is heard, what is amiss."""

from collections.abc import Iterator
from time import monotonic

from schemas.following import ControlRow, RouterRow
from services.control.answering.tokens import Tokens
from services.control.loop import Loop
from services.fleet.views import Live


def live(loop: Loop, tokens: Tokens) -> Live:
    """At this moment."""
    held = loop.state.epoch.get(())
    return Live(
        now=loop.now(),
        leading=loop.leading,
        leader="" if held is None else held.document.holder,
        damage=loop.damage,
        moving=loop.recovering.moving(),
        controls=_controls(loop),
        routers=_routers(loop),
        agents=loop.followers.agents(loop.state, loop.ears.agents(), monotonic()),
        damaged_agents=loop.ears.damaged_agents(),
        doubted=() if loop.damage else tuple(claim.line for claim in loop.opener.doubted),
        warnings=(*_warnings(loop, tokens), *loop.opener.warnings, *loop.opener.past),
        catalog_refused=loop.current().refused,
        deciding_fails=loop.deciding_fails,
    )


def _warnings(loop: Loop, tokens: Tokens) -> Iterator[str]:
    trouble = loop.connection.trouble
    if trouble and not loop.connection.connected:
        trouble = f"NATS is away: this is the last known state; {trouble}"
    if trouble:
        yield trouble
    if loop.writing.refused:
        yield f"the log refused a write: {loop.writing.refused}"
    if loop.writing.stuck and loop.connection.connected:
        yield (
            "the log answers no write: nats-server's disk is full and it needs a restart once there "
            "is room, or too few of its servers are up"
        )
    if loop.not_remembered:
        yield f"the disk does not hold how far the log was followed: {loop.not_remembered}"
    if tokens.trouble:
        yield f"the tokens are those of an earlier file: {tokens.trouble}"


def _controls(loop: Loop) -> tuple[ControlRow, ...]:
    """All that beat, and this one, whose own beat may not come back."""
    now, own = monotonic(), loop.beat()
    beats = dict(loop.ears.controls)
    if own is not None:
        beats[own.control, own.incarnation] = own, now
    return tuple(
        loop.followers.control(loop.state, beat, at, now, answering=beat is own)
        for _, (beat, at) in sorted(beats.items(), key=lambda item: item[0])
    )


def _routers(loop: Loop) -> tuple[RouterRow, ...]:
    now = monotonic()
    return tuple(
        loop.followers.router(loop.state, beat, at, now)
        for _, (beat, at) in sorted(loop.ears.routers.items(), key=lambda item: item[0])
    )
