"""Which log the agent has followed, and how far, on disk: a later start must know another one."""

import asyncio
from pathlib import Path

from schemas import codec
from services.agent.disk import Disk
from services.log.identity import Trust
from services.runtime.files import write_atomically

SAVE_SECONDS = 1.0


async def keep_seen(trust: Trust, path: Path, disk: Disk) -> None:
    """For ever."""
    saved = trust.seen
    while True:
        seen = trust.seen
        if seen is not None and seen != saved:
            content = codec.encode(seen)
            if await disk.keep("the log followed", lambda: write_atomically(path, content)):  # noqa: B023 - awaited here.
                saved = seen
        await asyncio.sleep(SAVE_SECONDS)
