"""`python -m services.control`: settings, event loop, signals. Wiring only."""

import asyncio
import os
import secrets
import sys
from contextlib import suppress

from services.lean import without

with without("rich"):  # For tracebacks in colour: a tenth of a second.
    import structlog

from schemas.ids import ControlId
from services.control.answering.tokens import Tokens, TokensUnreadable
from services.control.config import Config, from_settings
from services.control.damage import SeenFile
from services.control.leader import Leadership
from services.control.loop import Loop
from services.log.connect import Connection
from services.runtime.files import unusable
from services.runtime.names import own_name
from services.runtime.process import configure_logging, until_signalled
from services.runtime.saying import err
from services.settings_io import EXIT_USAGE, or_exit

EXIT_CANNOT_LISTEN = 1
SETTLE_SECONDS = 2.0
"""The management API opens after the first turn, or after this time without one while NATS is away."""
LONGEST_SETTLING_SECONDS = 10.0
"""While NATS is there: a large log is being read, and what HTTP needs to load would only delay that."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class CannotListen(Exception):
    """The management API's address cannot be had."""


def main() -> int:
    """Its exit code."""
    found = or_exit("control", sys.argv[1:], os.environ)
    configure_logging("control", found.text("log.level"))
    try:
        config = from_settings(found)
    except ValueError as error:
        return _usage(str(error))
    try:
        tokens = Tokens(config.tokens, named=config.tokens_named)
        name = config.name or ControlId(own_name(config.data, "control"))
        seen = SeenFile(config.data / "seen.json")
    except TokensUnreadable as error:
        return _usage(str(error))
    except OSError as error:
        return _usage(unusable(config.data, error))
    return asyncio.run(until_signalled(lambda: serve(config, name, seen, tokens)))


def _usage(reason: str) -> int:
    err(f"error: {reason}")
    return EXIT_USAGE


async def serve(config: Config, name: ControlId, seen: SeenFile, tokens: Tokens) -> int:
    """Until cancelled."""
    connection = Connection(config.nats, name)
    leadership = Leadership(name, secrets.token_hex(4), config.address)
    loop = Loop(
        connection,
        leadership,
        seen,
        config.tick_seconds,
        config.nats_monitor,
        config.log_replicas,
        config.unreachable_after,
    )
    code = 0
    await connection.start()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run())
            await _open_doors(config, loop, tokens, group)
    except* CannotListen as errors:
        log.error("control.cannot_listen", reason=str(errors.exceptions[0]))  # noqa: TRY400
        code = EXIT_CANNOT_LISTEN
    finally:
        await connection.close()
    return code


async def _open_doors(config: Config, loop: Loop, tokens: Tokens, group: asyncio.TaskGroup) -> None:
    """HTTP, metrics and commands are loaded only now: the first decision does not wait for them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS):
            await loop.settled.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_SETTLING_SECONDS if loop.connection.connected else 0):
            await loop.settled.wait()
    from services.control.answering.api import Api
    from services.control.answering.rpc import CommandsByNats
    from services.runtime.admin import listen

    group.create_task(CommandsByNats(loop).run())
    try:
        runner = await listen(Api(loop, tokens).app(), config.listen)
    except OSError as error:
        raise CannotListen(str(error)) from error
    log.info("control.listens", address=config.listen)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
