"""What the agent must keep on disk, and what it does when the disk refuses: say so, go on, try again.

A full or read-only disk ends neither the agent nor an engine; it makes the node not ready.
"""

import asyncio
from collections.abc import Callable

import structlog

log = structlog.get_logger()

RETRY_SECONDS = 1.0


class Disk:
    """Which writes were refused the last time."""

    def __init__(self) -> None:
        self._faults: dict[str, str] = {}

    @property
    def fault(self) -> str:
        """Empty: everything that had to be kept is on disk."""
        return "; ".join(f"{what}: {why}" for what, why in sorted(self._faults.items()))

    async def keep(self, what: str, write: Callable[[], object]) -> bool:
        """In a thread. False: it was refused, and the caller is to try again."""
        return await asyncio.to_thread(self.keep_now, what, write)

    def keep_now(self, what: str, write: Callable[[], object]) -> bool:
        """Blocks for the disk."""
        try:
            write()
        except OSError as error:
            if what not in self._faults:
                log.warning("agent.disk_refuses", what=what, reason=str(error))
            self._faults[what] = error.strerror or str(error)
            return False
        if self._faults.pop(what, None) is not None:
            log.info("agent.disk_takes_again", what=what)
        return True
