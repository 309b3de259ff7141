"""`flotilla journal export|import|verify`: the program that does it, with moments as the asker means them.

It comes into NATS by the doors of the `up` whose data folder is meant: as operator to read, as
administrator to write. Whoever says where NATS is, says that too.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ctl.at import resolved
from ctl.doors import ADMIN, OPERATOR, door, recall_doors
from ctl.failure import Exit, Failure
from ctl.remembered import recall
from ctl.settings import argument, flags, option, settings
from services.fleet.settings_table import BY_NAME, settings_of
from services.log.permissions import User

_DATA = BY_NAME["data.dir"]


@dataclass(frozen=True)
class Place:
    """Which fleet is meant."""

    data: Path
    said: bool
    """On the command line."""
    config: Path | None

    @property
    def words(self) -> list[str]:
        """For the program: what it says to type next is meant for the same fleet."""
        config = [f"--config={self.config}"] if self.config else []
        return [*config, *([f"--data={self.data}"] if self.said else [])]


class Verb(click.Command):
    """With the options that name a fleet; its function gets the `Place` by `click.pass_obj`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignore_unknown_options = True  # They are the program's.
        config = click.Option(["--config"], type=click.Path(path_type=Path), help="Settings file.")
        self.params += [option(_DATA), config]

    def invoke(self, ctx: click.Context) -> Any:
        """Read where it is."""
        given = {argument(_DATA): ctx.params.pop(argument(_DATA))}
        told, config = flags("operator", given), ctx.params.pop("config")
        data = Path(settings("operator", told, config).text("data.dir"))
        ctx.obj = Place(data, bool(told), config)
        return super().invoke(ctx)


def way_in(place: Place, user: User, words: tuple[str, ...]) -> dict[str, str]:
    """Environment of the program: what nobody has told it of the NATS of the fleet that is meant."""
    told = _told(place, words)
    if "nats.url" in told:
        return {}
    data = place.data.resolve()
    ports = recall(data)
    if ports is None and place.said:
        raise Failure(
            Exit.NOT_FOUND,
            "no_fleet",
            f"no `flotilla up` has run with {place.data}",
            why="where NATS is stands in the data folder; --nats-url says it too",
        )
    if ports is None:
        return {}
    found = door(data, recall_doors(data), ports, user)
    made = {"nats.url": found.url, "nats.ca": found.ca}
    if "nats.user" not in told:
        made |= {"nats.user": found.user, "nats.password-file": found.password_file}
    return {
        BY_NAME[name].variable: str(value)
        for name, value in made.items()
        if value and name not in told
    }


def _told(place: Place, words: tuple[str, ...]) -> set[str]:
    """Settings that have a value by words, environment or file."""
    flags = {word.partition("=")[0] for word in words}
    by_words = {row.name for row in settings_of("journal") if f"--{row.flag}" in flags}
    values = settings("journal", config=place.config).values
    return by_words | {name for name, (_, source) in values.items() if source != "default"}


def _become(
    place: Place, user: User, words: tuple[str, ...], verb: str, *own: str, **options: str | None
) -> None:
    """Not a child process: signals and the exit code are the program's own."""
    told = [f"--{name}={text}" for name, text in options.items() if text is not None]
    command = [sys.executable, "-m", "services.journal", verb, *own, *told, *words, *place.words]
    os.execve(sys.executable, command, os.environ | way_in(place, user, words))  # noqa: S606  # An argv of ours; the words are the user's own.


SINCE = click.option("--since", metavar="MOMENT", help="From then on: a sequence or a time.")
UNTIL = click.option("--until", metavar="MOMENT", help="Up to then.")
WORDS = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--NATS-URL URL …]")
FOLDER = click.argument("folder", metavar="DIR")


@click.command(cls=Verb)
@FOLDER
@SINCE
@UNTIL
@WORDS
@click.pass_obj
def export(
    place: Place, folder: str, since: str | None, until: str | None, words: tuple[str, ...]
) -> None:
    """Write the log to DIR, a compressed file of JSON lines a day. Run again, it goes on.

    It speaks to NATS itself: to that of the fleet whose data folder is here or named, else to where
    `--nats-url` and the other settings of NATS say, as for the programs.
    """
    span = {"since": _moment(since), "until": _moment(until)}
    _become(place, OPERATOR, words, "export", folder, **span)


@click.command("import", cls=Verb)
@FOLDER
@WORDS
@click.pass_obj
def import_(place: Place, folder: str, words: tuple[str, ...]) -> None:
    """Make the log that was exported to DIR anew, in an empty NATS. Programs may run meanwhile."""
    _become(place, ADMIN, words, "import", folder)


@click.command(cls=Verb)
@SINCE
@click.option("-o", "--output", type=click.Choice(["table", "json"]), help="Form of the result.")
@WORDS
@click.pass_obj
def verify(place: Place, since: str | None, output: str | None, words: tuple[str, ...]) -> None:
    """Read the log through: is all of it there, readable, and by whom it should be? Exit 1 if not."""
    _become(place, OPERATOR, words, "verify", since=_moment(since), output=output)


def _moment(text: str | None) -> str | None:
    return None if text is None else resolved(text)
