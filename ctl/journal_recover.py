"""`flotilla journal recover`: what is known of a lost log, and the ways to go on."""

from collections.abc import Iterator
from pathlib import Path

import click

from ctl.catalog_file import read, text
from ctl.failure import Exit
from ctl.operator import Operator, Verb
from ctl.render import result
from ctl.texts import NAME, reason_option
from ctl.typed import typed
from schemas.frames import Accepted
from schemas.ids import ModelName, NodeId
from schemas.recovery import Moving, Recover, Recovery, Way, WayOut


@click.command(cls=Verb)
@click.option(
    "--from",
    "way",
    type=click.Choice(["memory", "log", "agents"]),
    help="What control held in memory; what stands in NATS; only what agents run.",
)
@click.option(
    "--catalog",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The catalog to go on with, where none is known or another is meant.",
)
@click.option(
    "--prune", type=NAME, multiple=True, metavar="MODEL", help="A model whose engines may end."
)
@click.option(
    "--without",
    type=NAME,
    multiple=True,
    metavar="NODE",
    help="A node that is away, and may be missing.",
)
@reason_option
@click.pass_obj
def recover(
    operator: Operator,
    way: Way | None,
    file: Path | None,
    prune: tuple[str, ...],
    without: tuple[str, ...],
    reason: str,
) -> int:
    """Go on after the log was lost or damaged. Without --from: what is known, and the ways out.

    A new log is begun that names the lost one. No engine is stopped, and routers serve on. What runs on
    a node that is away meanwhile is taken over when it returns.
    """
    if way is None:
        return _show(operator)
    content, name = (None, "") if file is None else read(file)
    request = Recover(
        way=way,
        catalog=None if content is None else text(content, name),
        file=name,
        prune=tuple(ModelName(model) for model in prune),
        without=tuple(NodeId(node) for node in without),
        reason=reason,
    )
    answer = operator.client().ask("recover", Accepted, request=request)
    if not operator.prints_frame(answer.body):
        result(f"a new log is begun (command {answer.frame.command})")
        result(f"next: {typed('flotilla status')}")
    return Exit.YES


def _show(operator: Operator) -> int:
    answer = operator.client().ask("recovery", Recovery)
    found = answer.frame
    if not operator.prints_frame(answer.body):
        result(*_lines(found))
    return Exit.YES if found.damage is None and found.moving is None else Exit.NO


def _lines(found: Recovery) -> Iterator[str]:
    if found.damage is None and found.moving is None:
        yield "the log is sound: there is nothing to recover"
    if found.damage is not None:
        yield f"damaged since {found.damage.since}: {found.damage.reason}"
    if found.moving is not None:
        yield from _moving(found.moving)
    for model, count in found.running.items():
        yield f"  running   {count} of {model}"
    for way in found.ways:
        yield from _way(way)


def _moving(moving: Moving) -> Iterator[str]:
    made = f", made from {moving.told}" if moving.told else ""
    yield f"recovering: log {moving.log} goes on from {moving.parent}{made}"
    if moving.moved:
        yield f"  moved     {', '.join(moving.moved)}"
    yield from (f"  waits for {line}" for line in moving.waits_for)


def _way(way: WayOut) -> Iterator[str]:
    if way.impossible:
        yield f"  {way.way:<8}  impossible: {way.impossible}"
        return
    at = f"log {way.log} to sequence {way.sequence:,}, " if way.log else ""
    catalog = f"catalog r{way.revision}, " if way.revision else "no catalog, "
    yield f"  {way.way:<8}  {at}{catalog}{way.replicas} replicas, {way.nodes} nodes"
    if way.away:
        yield f"            away: {', '.join(way.away)} (to go on without one: --without NODE)"
    if way.unsure:
        yield f"            {way.unsure}"
    yield f"            {typed(way.command)}"
