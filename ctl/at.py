"""`--at`: the fleet as it was. The moment is understood here, in the asker's zone, and told back."""

import os
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from ctl.client import Answer
from ctl.failure import Exit, Failure
from ctl.operator import Operator
from ctl.render import talk
from schemas import codec
from schemas.frames import Frame
from services.fleet.telling.moments import AtSequence, clock, moment, shown, zone_name
from services.fleet.units import Wrong
from services.fleet.unseen import escaped

F = TypeVar("F", bound=Frame)

PAST_SECONDS = 60.0
"""An answer about the past is computed out of the log, and may take so long."""
LOCALTIME = Path("/etc/localtime")
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")

at_option = click.option(
    "--at",
    metavar="MOMENT",
    help="As it was then: a sequence, RFC 3339, or a local time (`03:12`, `yesterday 03:12`, `-2h`).",
)


def ask(
    operator: Operator,
    name: str,
    kind: type[F],
    at: str | None,
    *,
    path: Mapping[str, str] | None = None,
) -> Answer[F]:
    """The route's answer, of now or of the moment `at`, which is then told on stderr."""
    client = operator.client()
    query = None if at is None else {"at": resolved(at)}
    seconds = None if at is None else PAST_SECONDS
    with told_here():
        answer = client.ask(name, kind, path=path, query=query, seconds=seconds)
    if at is None:
        return answer
    as_of = answer.frame.as_of
    then = local(as_of) if isinstance(as_of, str) else "a time that is not kept"
    talk(f"as of {then}, sequence {answer.frame.as_of_seq:,}")
    return answer


def resolved(text: str) -> str:
    """A moment as the server takes it: a sequence, or RFC 3339 in UTC."""
    found = moment(text, now(), zone())
    if isinstance(found, Wrong):
        raise Failure(Exit.USAGE, "bad_moment", found.message, why=found.hint)
    return str(found.sequence) if isinstance(found, AtSequence) else codec.rfc3339(found.seconds)


@contextmanager
def told_here() -> Generator[None]:
    """Times in a refusal are told in the asker's zone."""
    try:
        yield
    except Failure as failure:
        raise Failure(
            failure.exit_code,
            failure.code,
            locally(failure.message),
            why=locally(failure.why),
            steps=failure.steps,
            details=failure.details,
        ) from failure


def locally(text: str) -> str:
    """A text whose times are UTC, as it reads here."""
    return _STAMP.sub(lambda found: local(found.group()), text)


def local(at: str) -> str:
    """A time of the log as it reads here, with its zone. What is no time is told as it stands."""
    try:
        return shown(codec.seconds(at), zone())
    except (ValueError, OverflowError):
        return at


def short(at: str) -> str:
    """The same for a column, whose heading is `heading`. What is no time is shown as it stands."""
    try:
        return clock(codec.seconds(at), zone())
    except (ValueError, OverflowError):
        return escaped(at)[:16]


def heading(at: str) -> str:
    """`TIME (CET)`: the zone that is in force at a time."""
    try:
        return f"TIME ({zone_name(codec.seconds(at), zone())})"
    except (ValueError, OverflowError):
        return "TIME"


def now() -> float:
    """This machine's clock: what the asker means by `yesterday`."""
    return time.time()  # noqa: TID251 - an operator's verb is the asker's shell.


def zone(environ: Mapping[str, str] = os.environ, localtime: Path = LOCALTIME) -> tzinfo:
    """The asker's: TZ, else this machine's. A TZ that names none is a Failure: no time is guessed."""
    name = environ.get("TZ")
    if name is not None:
        return _named(name.removeprefix(":"))
    try:
        return _of_file(localtime)
    except (OSError, ValueError):
        return datetime.fromtimestamp(now(), UTC).astimezone().tzinfo or UTC


def _named(name: str) -> tzinfo:
    try:
        if name.startswith("/"):
            return _of_file(Path(name))
        return ZoneInfo(name) if name else UTC
    except (OSError, ValueError, ZoneInfoNotFoundError) as error:
        raise Failure(
            Exit.USAGE,
            "bad_zone",
            f"TZ names no time zone that is known here: `{escaped(name[:40])}`",
            why="write a name such as Europe/Berlin or UTC; unset, TZ is this machine's",
        ) from error


def _of_file(path: Path) -> tzinfo:
    with path.open("rb") as file:
        return ZoneInfo.from_file(file)
