"""Wait for conditions, never for luck."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    ask: Callable[[], Awaitable[T | None]], what: str, cap: float = 60.0, pause: float = 0.05
) -> T:
    """Ask until the answer is truthy; fails naming `what` after `cap` seconds. Returns the answer."""
    ends = time.monotonic() + cap
    last: object = None
    while time.monotonic() < ends:
        answer = await ask()
        if answer:
            return answer
        last = answer
        await asyncio.sleep(pause)
    raise AssertionError(f"not within {cap:.0f} s: {what} (last answer: {last!r})")
