"""`python -m services.journal export|import|verify`: words, settings, and how it ends. Wiring only."""

import asyncio
import errno
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from pathlib import Path

import msgspec
from msgspec import Struct

from services.fleet.settings import usage
from services.fleet.telling.moments import Moment, moment
from services.fleet.units import Wrong
from services.journal.checks import Finding
from services.journal.export import Export, Span, summary
from services.journal.folder import Folder, Manifest, Torn, writing
from services.journal.importing import Import
from services.journal.verify import Verify, report
from services.journal.verify import summary as verified
from services.log.api import ApiError
from services.log.connect import Connection
from services.log.door import Door, door
from services.log.message import Denied, Unavailable
from services.log.streams import LogDamaged
from services.runtime.failure import Exit, Failure
from services.runtime.process import configure_logging
from services.runtime.saying import Unread, err, out, out_as_it_is, told, unread
from services.runtime.typed import typed
from services.settings_io import or_exit

CONNECT_SECONDS = 5.0
"""A first link takes milliseconds; who waits longer should be told."""
OWN = {"export": ("since", "until"), "import": (), "verify": ("since", "output")}
PLACE = "data"
"""Which fleet is meant, for what is typed next; where its NATS is, the settings say."""
FORMS = ("table", "json")
FULL = (errno.ENOSPC, errno.EDQUOT)
HELP = """usage: flotilla journal export DIR [--since MOMENT] [--until MOMENT]
       flotilla journal import DIR
       flotilla journal verify [--since MOMENT] [--output table|json]

A moment is a sequence of the log, or a time: 2026-11-29T03:12:00Z. Each verb also takes:

"""


class Words(Struct, frozen=True):
    """The command line."""

    verb: str
    folder: Path
    since: Moment | None
    until: Moment | None
    settings: tuple[str, ...]
    output: str = FORMS[0]


def main() -> int:
    """Its exit code."""
    try:
        if "--help" in sys.argv[1:] or not sys.argv[1:]:
            out_as_it_is((HELP + usage("journal").partition("\n\n")[2]).rstrip("\n"))
            return Exit.YES
        words = read_words(sys.argv[1:], time.time())  # noqa: TID251 - the asker's shell.
        found = or_exit("journal", words.settings, os.environ)
        configure_logging("journal", "error")
        return asyncio.run(_run(words, door(found)))
    except Failure as failure:
        return told(failure)
    except ValueError as error:
        return told(Failure(Exit.USAGE, "bad_settings", str(error)))
    except Unread as error:
        return unread(error.__cause__)
    except (Torn, OSError) as error:
        return told(Failure(Exit.REFUSED, "bad_folder", "the folder is of no use", why=str(error)))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def read_words(argv: Sequence[str], now: float) -> Words:
    """Raises Failure."""
    own: dict[str, str] = {}
    settings: list[str] = []
    plain: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            plain.append(word)
        elif name in {PLACE, *(each for names in OWN.values() for each in names)}:
            own[name] = value if equals else next(words, "")
        else:
            settings += [word] if equals else [word, *([text] if (text := next(words, "")) else [])]
    verb = plain[0] if plain else ""
    if verb not in OWN or len(plain) != (1 if verb == "verify" else 2):
        raise _misused(f"`{' '.join(plain)}` is not how a journal is asked")
    if not plain[-1]:
        raise _misused("DIR is empty")
    if wrong := set(own) - {PLACE, *OWN[verb]}:
        raise _misused(f"journal {verb} takes no --{min(wrong)}")
    if (output := own.get("output", FORMS[0])) not in FORMS:
        raise _misused(f"`{output}` is no form: {' or '.join(FORMS)}")
    return Words(
        verb,
        Path(plain[-1]),
        _moment(own.get("since"), now),
        _moment(own.get("until"), now),
        tuple(settings),
        output,
    )


def _moment(text: str | None, now: float) -> Moment | None:
    if text is None:
        return None
    found = moment(text, now, UTC)
    if isinstance(found, Wrong):
        raise Failure(Exit.USAGE, "bad_moment", found.message, why=found.hint)
    return found


def _misused(reason: str) -> Failure:
    return Failure(Exit.USAGE, "usage", reason, steps=["flotilla journal --help"])


async def _run(words: Words, door: Door) -> int:
    connection = Connection(door, "journal")
    await connection.start()
    try:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.wait_connected()
        except TimeoutError:
            why = connection.trouble or f"no answer in {CONNECT_SECONDS:g} s"
            raise Failure(
                Exit.UNREACHABLE, "no_nats", f"NATS at {door.url} cannot be reached", why=why
            ) from None
        return await _asked(lambda: _RUN[words.verb](words, connection))
    finally:
        await connection.close()


async def _asked(verb: Callable[[], Awaitable[int]]) -> int:
    """Raises Failure for whatever NATS said no with."""
    try:
        return await verb()
    except Denied as error:
        raise Failure(
            Exit.UNREACHABLE, "denied", "NATS does not let this user do that", why=str(error)
        ) from error
    except Unavailable as error:
        raise Failure(
            Exit.UNREACHABLE,
            "no_answer",
            "NATS gave no answer; what was done until then stands",
            why=str(error),
        ) from error
    except (ApiError, LogDamaged) as error:
        raise Failure(Exit.REFUSED, "refused", "the server refuses", why=str(error)) from error


async def _export(words: Words, connection: Connection) -> int:
    try:
        with writing(words.folder) as folder:
            before = folder.manifest
            try:
                await Export(connection, folder, err).run(Span(words.since, words.until))
            finally:  # Also where it is cut off: the next one goes on there.
                out(_added(before, folder.manifest))
            out(f"{words.folder} holds {summary(folder.manifest)}")
    except BlockingIOError as error:
        raise Failure(Exit.REFUSED, "busy", f"another export writes to {words.folder}") from error
    except OSError as error:
        raise _not_written(words.folder, error) from error
    return Exit.YES


def _added(before: Manifest, held: Manifest) -> str:
    added = held.events - before.events
    return f"{added} events added" + (f" behind {before.last}" if added and before.last else "")


def _not_written(folder: Path, error: OSError) -> Failure:
    full = error.errno in FULL
    return Failure(
        Exit.REFUSED,
        "disk_full" if full else "not_written",
        f"{folder} {'has no room left' if full else 'cannot be written to'}: {error}",
        why="what was exported until then is whole and counts; the same command goes on there",
        steps=[f"flotilla journal export {shlex.quote(str(folder))}"],
    )


async def _import(words: Words, connection: Connection) -> int:
    folder = Folder(words.folder)
    written = await Import(connection, folder, err).run()
    out(f"{written} messages written; LOG ends at {folder.manifest.last}")
    out(f"next: {typed('flotilla status')}")
    recover = typed("flotilla journal recover --from log")
    out(f"where that says that the log is damaged: {recover}")
    return Exit.YES


async def _verify(words: Words, connection: Connection) -> int:
    findings: list[Finding] = []
    as_json = words.output == "json"
    tell = findings.append if as_json else _found
    found = await Verify(connection, tell, err).run(words.since)
    if as_json:
        out_as_it_is(msgspec.json.encode(report(found, findings)).decode())
    else:
        out(verified(found))
    return Exit.NO if found.findings else Exit.YES


_RUN: dict[str, Callable[[Words, Connection], Awaitable[int]]] = {
    "export": _export,
    "import": _import,
    "verify": _verify,
}


def _found(finding: Finding) -> None:
    out(f"{finding.sequence}  {finding.kind}  {finding.reason}")


if __name__ == "__main__":
    sys.exit(main())
