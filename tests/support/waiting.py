"""Waiting for what must come true, with a cap far above any sane time."""

import asyncio
from collections.abc import Callable

CAP_SECONDS = 60.0


async def until(condition: Callable[[], object], cap_seconds: float = CAP_SECONDS) -> None:
    """Returns once `condition` holds; fails after the cap."""
    async with asyncio.timeout(cap_seconds):
        while not condition():  # noqa: ASYNC110 - conditions have no event.
            await asyncio.sleep(0.005)
