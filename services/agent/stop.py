"""`python -m services.agent.stop DATA_DIR [GRACE_SECONDS]`: end every engine of a stopped agent.

The agent starts them again when it comes back, without counting a failure.
"""

import asyncio
import sys
from pathlib import Path

from services.agent import clock
from services.agent.lock import Locked, locked
from services.agent.sessions import stop_all
from services.agent.store import Store
from services.runtime.saying import err, out

GRACE_SECONDS = 8.0


def main(data: str, grace: str = "") -> int:
    """Its exit code: 1, the agent still runs."""
    store = Store(Path(data))
    grace_seconds = float(grace) if grace else GRACE_SECONDS
    try:
        with locked(store.lock):
            stopped = asyncio.run(stop_all(store, clock.now(), grace_seconds))
    except Locked as error:
        err(f"error: {error}")
        return 1
    out(f"engines stopped: {stopped}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
