"""`python -m services.agent`: settings, event loop, signals."""

import asyncio
import os
import random  # noqa: TID251 - the process's one source of chance.
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import structlog

from services.agent import clock
from services.agent.config import Config, configure
from services.agent.lock import Locked, locked
from services.agent.loop import Agent, CannotListen
from services.agent.node import NameTaken
from services.agent.sessions import marked, stop_all
from services.agent.store import Store
from services.runtime.files import unusable
from services.runtime.process import configure_logging, until_signalled
from services.runtime.saying import err
from services.settings_io import EXIT_USAGE, or_exit

EXIT_CANNOT_LISTEN = 1
EXIT_CONFLICT = 4
ENDING_GRACE_SECONDS = 8.0

log = structlog.get_logger()


def main() -> int:
    """Its exit code."""
    settings = or_exit("agent", sys.argv[1:], os.environ)
    configure_logging("agent", settings.text("log.level"))
    try:
        config = configure(settings)
    except ValueError as error:
        err(f"error: {error}")
        return EXIT_USAGE
    with ExitStack() as held:
        try:
            store = Store(config.data)
            held.enter_context(locked(store.lock))
        except Locked as error:
            log.error("agent.locked", reason=str(error))  # noqa: TRY400 - it says it all.
            return EXIT_CONFLICT
        except OSError as error:
            err(f"error: {unusable(config.data, error)}")
            return EXIT_USAGE
        return asyncio.run(until_signalled(lambda: serve(config, store)))


async def serve(config: Config, store: Store) -> int:
    """Until cancelled. Engines outlive it, unless the configuration says that they cannot."""
    source = random.Random(secrets.randbits(64))  # noqa: S311 - jitter.
    try:
        await Agent(config, store, source).run()
    except ExceptionGroup as group:
        code = _told(group)
        if code is None:
            raise
        return code
    finally:
        if not config.engines_survive:
            await stop_all(store, clock.now(), ENDING_GRACE_SECONDS)
        left = await asyncio.to_thread(marked, store)
        log.info(
            "agent.ends", engines_left_running=len(left), **(_how_to_end(store) if left else {})
        )
    return 0


def _how_to_end(store: Store) -> dict[str, str]:
    return {"next": f"{sys.executable} -m services.agent.stop {shlex.quote(str(store.data))}"}


def _told(group: ExceptionGroup[Exception]) -> int | None:
    """The exit code for what an operator can mend; None: a mistake of ours."""
    for error in _leaves(group):
        match error:
            case NameTaken():
                log.error("agent.refused", reason=str(error))
                return EXIT_CONFLICT
            case CannotListen():
                log.error("agent.cannot_listen", reason=str(error))
                return EXIT_CANNOT_LISTEN
            case _:
                continue
    return None


def _leaves(error: Exception) -> Iterator[Exception]:
    match error:
        case ExceptionGroup(exceptions=inner):
            for each in inner:
                yield from _leaves(each)
        case _:
            yield error


if __name__ == "__main__":
    sys.exit(main())
