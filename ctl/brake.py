"""`flotilla brake`: what mass silence holds back, and its end by command."""

from collections.abc import Iterator

import click

from ctl.at import ask, at_option
from ctl.operator import Operator, Verb
from ctl.render import result
from ctl.texts import reason_option
from ctl.typed import typed
from schemas.brake import BrakeView, ReleaseBrake
from schemas.frames import Accepted


@click.command("show", cls=Verb)
@at_option
@click.pass_obj
def show(operator: Operator, at: str | None) -> None:
    """Whether the brake is on, since when, and what it holds back."""
    answer = ask(operator, "brake", BrakeView, at)
    if not operator.prints_frame(answer.body):
        result(*_lines(answer.frame))


@click.command("off", cls=Verb)
@reason_option
@click.pass_obj
def off(operator: Operator, reason: str) -> None:
    """End the brake: nodes that are silent now may be lost, and their replicas rebuilt."""
    request = ReleaseBrake(state="off", reason=reason)
    answer = operator.client().ask("brake-off", Accepted, request=request)
    if not operator.prints_frame(answer.body):
        result(f"brake off (command {answer.frame.command})", f"  next: {typed('flotilla status')}")


def _lines(told: BrakeView) -> Iterator[str]:
    brake = told.brake
    if brake is None:
        how = f"command {told.released_by}" if told.released_by else "itself"
        yield f"off; released at {told.released_at} by {how}" if told.released_at else "off"
        return
    yield f"on since {brake.since}: {brake.silent} of {brake.nodes} nodes fell silent at once"
    yield f"  still silent  {brake.still_silent}"
    yield f"  held back     {brake.replicas_held} replicas: neither given up nor rebuilt"
    yield f"  ends          {_end(brake.calm_since)}"
    yield f"  next: {typed('flotilla brake off --reason WHY')}"


def _end(calm_since: str) -> str:
    if calm_since:
        return f"60 s after {calm_since}, while less than a quarter is silent"
    return "once less than a quarter has been silent for 60 s"
