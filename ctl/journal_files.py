"""`flotilla journal export|import|verify`: the program that does it, with moments as the asker means them."""

import os
import sys

import click

from ctl.at import resolved

PASSED_ON: dict[str, object] = {"ignore_unknown_options": True}


def _become(verb: str, words: tuple[str, ...], **moments: str | None) -> None:
    """Not a child process: signals and the exit code are the program's own."""
    told = [f"--{name}={resolved(text)}" for name, text in moments.items() if text is not None]
    command = [sys.executable, "-m", "services.journal", verb, *words, *told]
    os.execv(sys.executable, command)  # noqa: S606  # An argv of ours; the words are the user's own.


SINCE = click.option("--since", metavar="MOMENT", help="From then on: a sequence or a time.")
UNTIL = click.option("--until", metavar="MOMENT", help="Up to then.")
WORDS = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--NATS-URL URL …]")
FOLDER = click.argument("folder", metavar="DIR")


@click.command(context_settings=PASSED_ON)
@FOLDER
@SINCE
@UNTIL
@WORDS
def export(folder: str, since: str | None, until: str | None, words: tuple[str, ...]) -> None:
    """Write the log to DIR, a compressed file of JSON lines a day. Run again, it goes on.

    It speaks to NATS itself: `--nats-url` and the other settings of NATS are as for the programs.
    """
    _become("export", (folder, *words), since=since, until=until)


@click.command("import", context_settings=PASSED_ON)
@FOLDER
@WORDS
def import_(folder: str, words: tuple[str, ...]) -> None:
    """Make the log that was exported to DIR anew, in an empty NATS, before anything else runs."""
    _become("import", (folder, *words))


@click.command(context_settings=PASSED_ON)
@SINCE
@WORDS
def verify(since: str | None, words: tuple[str, ...]) -> None:
    """Read the log through: is all of it there, readable, and by whom it should be? Exit 1 if not."""
    _become("verify", words, since=since)
