"""`flotilla explain-placement`: which node was looked at, and the first thing that spoke against it."""

from collections.abc import Iterator

import click

from ctl.at import ask, at_option
from ctl.failure import Exit
from ctl.operator import Operator, Verb
from ctl.render import result
from schemas.api import Explanation


@click.command("explain-placement", cls=Verb)
@click.argument("model")
@at_option
@click.pass_obj
def explain_placement(operator: Operator, model: str, at: str | None) -> int:
    """Why MODEL is where it is, or nowhere. Exit code 1 when it is not placed."""
    answer = ask(operator, "explain", Explanation, at, path={"model": model})
    if not operator.prints_frame(answer.body):
        result(*_lines(answer.frame))
    return Exit.YES if answer.frame.decided == "placed" else Exit.NO


def _lines(told: Explanation) -> Iterator[str]:
    yield f"{told.model}: {told.placed} of {told.wanted} placed; {_decided(told)}"
    for refusal in told.refusals:
        detail = f": {refusal.detail}" if refusal.detail else ""
        yield f"  {refusal.nodes} x {refusal.reason}{detail}"
    width = max((len(node) for node in told.candidates), default=0)
    for node, verdict in sorted(told.candidates.items()):
        yield f"  {node:<{width}}  {verdict}"
    yield f"  {'then' if isinstance(told.as_of, str) else 'now'}: {told.now}"


def _decided(told: Explanation) -> str:
    if told.decided == "nothing yet":
        return "nothing decided yet"
    word = "" if told.decided == "placed" else f"{told.decided}, "
    return f"{word}decided on what was known at seq {told.decided_at_seq:,}, by rules {told.rules}"
