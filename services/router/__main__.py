"""`python -m services.router`: settings, event loop, signals."""

import gc
import os
import secrets
import sys
from random import Random  # noqa: TID251 - the process's one source of chance.

import structlog
import uvloop

from schemas.ids import RouterId
from services.router.config import Config, from_settings
from services.router.program import Router
from services.router.static import StaticFiles, shown
from services.runtime.files import unusable
from services.runtime.names import own_name
from services.runtime.process import configure_logging, until_signalled
from services.runtime.saying import err
from services.settings_io import EXIT_USAGE, or_exit

EXIT_CANNOT_LISTEN = 1

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def main() -> int:
    """Its exit code."""
    found = or_exit("router", sys.argv[1:], os.environ)
    configure_logging("router", found.text("log.level"))
    try:
        config = from_settings(found)
    except ValueError as error:
        return _usage(str(error))
    try:
        name = config.name or RouterId(own_name(config.data, "router"))
    except OSError as error:
        return _usage(unusable(config.data, error))
    gc.set_threshold(50_000, 20, 100)  # Requests leave no cycles worth looking for more often.
    return uvloop.run(until_signalled(lambda: serve(config, name)))


async def serve(config: Config, name: RouterId) -> int:
    """Until cancelled."""
    chance = Random(secrets.randbits(64))  # noqa: S311 - draws among equals, guards nothing.
    router = Router(config, name, chance)
    try:
        if config.control_plane:
            from services.router.logged import run_with_log  # Static mode needs no NATS.

            await run_with_log(config, router)
        else:
            return await _alone(config, router)
    except OSError as error:
        log.error("router.cannot_listen", reason=str(error))  # noqa: TRY400 - it says it all.
        return EXIT_CANNOT_LISTEN
    return 0


async def _alone(config: Config, router: Router) -> int:
    if config.catalog is None or config.endpoints is None:
        return EXIT_USAGE
    files = StaticFiles(router.table, config.catalog, config.endpoints)
    if not await files.read():
        return _usage(*(shown(fault) for fault in files.faults))
    await router.run(files)
    return 0


def _usage(*reasons: str) -> int:
    err(*(f"error: {reason}" for reason in reasons))
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
