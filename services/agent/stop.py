"""`python -m services.agent.stop DATA_DIR [GRACE_SECONDS]`: end every engine of a stopped agent.

The agent starts them again when it comes back, without counting a failure. A signal cuts the grace
short and nothing else: it ends when no session is left, or says which one it could not end, and why.
"""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import structlog

from services.agent import clock
from services.agent.lock import Locked, locked
from services.agent.sessions import Marked, marked, still_there, stop_all
from services.agent.store import Store
from services.runtime.process import configure_logging
from services.runtime.saying import err, out

log = structlog.get_logger()

GRACE_SECONDS = 8.0
KILL_SECONDS = 6.0
"""For what KILL ends, its shim's last words included; twice, since it may be sent again."""


def main(data: str, grace: str = "") -> int:
    """Its exit code: 1, the agent still runs, or an engine does."""
    configure_logging("agent")
    store = Store(Path(data))
    grace_seconds = float(grace) if grace else GRACE_SECONDS
    try:
        with locked(store.lock):
            found = marked(store)
            log.info("agent.ends_engines", replicas=[each.replica for each in found])
            left = asyncio.run(_stop(store, grace_seconds))
    except Locked as error:
        err(f"error: {error}")
        return 1
    for each in left:
        err(f"error: {each.replica} was not ended: {still_there(each)}")
    out(f"engines stopped: {len(found) - len(left)}")
    return 1 if left else 0


async def _stop(store: Store, grace_seconds: float) -> list[Marked]:
    """TERM, the grace, KILL, and again until nothing is left. What is left nevertheless."""
    loop, done = asyncio.get_running_loop(), False
    graceful = asyncio.timeout(grace_seconds + KILL_SECONDS)

    def hurry() -> None:
        with suppress(RuntimeError):  # The grace is over already.
            graceful.reschedule(loop.time())

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hurry)
    with suppress(TimeoutError):
        async with graceful:
            await stop_all(store, clock.now(), grace_seconds)
            done = True
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_SECONDS):
            while not done or await _left(store):
                await stop_all(store, clock.now(), 0.0)
                done = True
    return await _left(store)


async def _left(store: Store) -> list[Marked]:
    return await asyncio.to_thread(marked, store)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
