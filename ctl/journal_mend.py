"""`flotilla journal mend`: documents that cannot be read, and how they are put right."""

import click

from ctl.failure import Exit
from ctl.operator import Operator, Verb
from ctl.render import Column, result, room, table
from ctl.texts import NAME, reason_option
from ctl.typed import typed
from schemas.frames import Accepted
from schemas.recovery import BadDocument, BadDocuments, Mend, Putting

COLUMNS = (
    Column[BadDocument]("SUBJECT", lambda bad: bad.subject),
    Column[BadDocument]("SEQ", lambda bad: str(bad.sequence), right=True),
    Column[BadDocument]("WRITER", lambda bad: bad.writer),
    Column[BadDocument]("IN FORCE", lambda bad: str(bad.last_good or "nothing")),
    Column[BadDocument]("REASON", lambda bad: bad.reason, prose=True),
)


@click.command(cls=Verb)
@click.argument("subject", type=NAME, required=False)
@click.option(
    "--with",
    "to",
    type=click.Choice(["last-good"]),
    default="last-good",
    show_default=True,
    help="Write the last value anew that could be read.",
)
@click.option("--gone", is_flag=True, help="Retire it instead: there is no such thing any more.")
@reason_option
@click.pass_obj
def mend(operator: Operator, subject: str | None, to: Putting, gone: bool, reason: str) -> int:
    """Put right the document of SUBJECT that cannot be read. Without SUBJECT: all such documents."""
    if subject is None:
        return _show(operator)
    request = Mend(subject=subject, to="gone" if gone else to, reason=reason)
    answer = operator.client().ask("mend", Accepted, request=request)
    if not operator.prints_frame(answer.body):
        result(f"{subject} is mended (command {answer.frame.command})")
    return Exit.YES


def _show(operator: Operator) -> int:
    answer = operator.client().ask("bad-documents", BadDocuments)
    items = answer.frame.items
    if operator.prints_frame(answer.body):
        return Exit.NO if items else Exit.YES
    if not items:
        result("every document can be read")
        return Exit.YES
    result(*table(items, COLUMNS, wide=operator.wide, room=room()))
    for bad in items:
        if bad.waits:
            result(f"{bad.subject}: {bad.waits}")
        if bad.command:
            result(f"next: {typed(bad.command)}")
    return Exit.NO
