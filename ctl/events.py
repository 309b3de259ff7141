"""`flotilla events`: what happened, in the log's order; `-f` goes on with what happens.

How it fails: without `-f`, as every verb. With it, whatever can pass is waited for: it goes on from the
event after the last one told, so none is missed and none told twice.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence

import click

from ctl.at import heading, local, now, resolved, short, told_here, zone
from ctl.client import Answer
from ctl.failure import Exit, Failure
from ctl.fitting import cut
from ctl.operator import Operator, Verb
from ctl.render import LEAST_PROSE, UNKNOWN, data, result, room, talk
from ctl.typed import typed
from schemas import codec
from schemas.history import LONGEST_WAIT_SECONDS, EventList, EventRow
from services.fleet.telling.moments import moment
from services.fleet.units import Wrong
from services.fleet.unseen import escaped

PART = 500
"""Rows of one answer."""
WAIT_SECONDS = 15
"""That control holds an answer back until there is something to tell."""
ANSWER_SECONDS = LONGEST_WAIT_SECONDS + 10
RETRY_SECONDS = 0.5
PAUSE_SECONDS = 0.2
"""Between two answers of a busy log, so that a follower costs control little."""


@click.command(cls=Verb)
@click.option("--since", metavar="MOMENT", help="From then on: `10m`, `03:12`, RFC 3339, …")
@click.option("--until", metavar="MOMENT", help="Up to then.")
@click.option("--from-seq", type=click.IntRange(1), metavar="SEQ", help="From this sequence on.")
@click.option(
    "--for",
    "target",
    metavar="KIND/NAME",
    help="Only what concerns one node, replica, model, gpu or command.",
)
@click.option("--type", "label", metavar="PREFIX", help="Only types that begin so.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@click.pass_obj
def events(
    operator: Operator,
    since: str | None,
    until: str | None,
    from_seq: int | None,
    target: str | None,
    label: str | None,
    limit: int | None,
    follow: bool,
) -> None:
    """What happened, out of the log: the last 100 events, or those asked for."""
    if follow and until is not None:
        raise click.UsageError("--follow has no end: --until is not taken with it")
    if since is not None and from_seq is not None:
        raise click.UsageError("--since and --from-seq both say where to begin: give one")
    query = {
        "for": target,
        "type": label,
        "from": None if from_seq is None else str(from_seq),
        "since": None if since is None else _since(since),
        "until": None if until is None else resolved(until),
    }
    told = {name: text for name, text in query.items() if text is not None}
    again = list(_again(told, limit, operator.output, follow=follow))
    if operator.output in {"json", "yaml"} and not follow:
        answer = _ask(operator, told | {"limit": str(limit or PART)}, follow=False)
        data(answer.body, operator.output)
        _less_than_asked(told.get("since"), answer.frame)
        _more(answer.frame, again)
        return
    _print(operator, _rows(operator, told, again, follow=follow, limit=limit))


def _again(
    told: Mapping[str, str], limit: int | None, output: str, *, follow: bool
) -> Iterator[str]:
    """The options of the same question, but for where it begins."""
    for name in ("for", "type", "until"):
        if name in told:
            yield from (f"--{name}", told[name])
    if limit is not None:
        yield from ("--limit", str(limit))
    if follow:
        yield "--follow"
    if output != "table":
        yield from ("--output", output)


def _since(text: str) -> str:
    """`10m` is meant as `-10m`."""
    ago = moment(f"-{text}", now(), zone())
    return resolved(text) if isinstance(ago, Wrong) else resolved(f"-{text}")


def _rows(
    operator: Operator,
    query: Mapping[str, str],
    again: Sequence[str],
    *,
    follow: bool,
    limit: int | None,
) -> Iterator[EventRow]:
    """Part by part: nothing is held whole."""
    asked, left = dict(query), limit
    while True:
        part = PART if left is None else min(PART, left)
        wait = {"wait": str(WAIT_SECONDS)} if follow else {}
        answer = _ask(operator, asked | wait | {"limit": str(part)}, follow=follow).frame
        _less_than_asked(asked.get("since"), answer)
        yield from answer.items
        left = None if left is None else left - len(answer.items)
        if left == 0:
            _more(answer, again)
            return
        if not follow and answer.next_seq > answer.end_seq:
            return
        asked = {k: v for k, v in asked.items() if k not in {"since", "from"}}
        asked |= {"from": str(answer.next_seq)}
        if follow:
            time.sleep(PAUSE_SECONDS)
        else:
            asked |= {"until": str(answer.end_seq)}


def _ask(operator: Operator, query: Mapping[str, str], *, follow: bool) -> Answer[EventList]:
    """A follower waits for whatever can pass."""
    told = False
    while True:
        try:
            with told_here():
                answer = operator.client().ask(
                    "events", EventList, query=query, seconds=ANSWER_SECONDS
                )
        except Failure as failure:
            if not follow or failure.exit_code != Exit.UNREACHABLE or failure.code in _LASTING:
                raise
            if not told:
                talk(f"{failure.message}; it goes on from there once that is over")
            told = True
            time.sleep(RETRY_SECONDS)
        else:
            return answer


_LASTING = {"unauthorized", "forbidden", "no_token", "not_understood"}
"""Waiting helps with none of them."""


def _less_than_asked(since: str | None, answer: EventList) -> None:
    """The log's age has taken some of it."""
    if since is None or answer.kept_from_seq <= 1 or not answer.kept_from:
        return
    asked = int(since) if since.isdecimal() else codec.seconds(since)
    kept = answer.kept_from_seq if since.isdecimal() else codec.seconds(answer.kept_from)
    if asked < kept:
        talk(f"kept from {local(answer.kept_from)}, sequence {answer.kept_from_seq:,}")


def _more(answer: EventList, again: Sequence[str]) -> None:
    if answer.next_seq <= answer.end_seq:
        words = ["--from-seq", str(answer.next_seq), *again]
        talk(f"more: {typed(f'flotilla events {shlex.join(words)}')}")


def _print(operator: Operator, rows: Iterator[EventRow]) -> None:
    begun = False
    for row in rows:
        match operator.output:
            case "name":
                result(row.id or str(row.seq))
            case "table" | "wide":
                if not begun:
                    result(_heading(operator, row))
                begun = True
                result(_line(operator, row))
            case _:
                data(codec.encode(row), "jsonl")
    if not begun and operator.output in {"table", "wide"}:
        talk("none")


def _heading(operator: Operator, first: EventRow) -> str:
    named = heading(first.at)
    rest = f"{'TYPE':<22}{'BY':<18}{'CAUSE SEEN':<12}WHAT" if operator.wide else "WHAT"
    return f"{'SEQ':>9}  {named:<16}{rest}"


def _line(operator: Operator, row: EventRow) -> str:
    begin = f"{row.seq:>9}  {short(row.at):<16}"
    if operator.wide:
        return f"{begin}{row.type:<22}{row.src:<18}{row.cause or UNKNOWN:<12}{row.summary}"
    columns = room()
    what = escaped(row.summary)
    return begin + (what if columns is None else cut(what, max(LEAST_PROSE, columns - len(begin))))
