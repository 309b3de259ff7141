"""Waiting for what must come true, with a cap far above any sane time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

CAP_SECONDS = 60.0


async def until(condition: Callable[[], object], cap_seconds: float = CAP_SECONDS) -> None:
    """Returns once `condition` holds; fails after the cap."""
    async with asyncio.timeout(cap_seconds):
        while not condition():  # noqa: ASYNC110 - conditions have no event.
            await asyncio.sleep(0.005)


def blocking_until(
    ask: Callable[[], T | None], what: str = "a condition", cap_seconds: float = CAP_SECONDS
) -> T:
    """The first answer that is truthy, for tests without an event loop; fails naming `what`."""
    ends = time.monotonic() + cap_seconds
    while not (answer := ask()):
        assert time.monotonic() < ends, f"not in {cap_seconds:.0f} s: {what}"
        time.sleep(0.01)
    return answer


async def eventually(
    ask: Callable[[], Awaitable[T | None]],
    what: str,
    cap_seconds: float = CAP_SECONDS,
    pause_seconds: float = 0.05,
) -> T:
    """The first answer that is truthy; fails naming `what` and the last answer after the cap."""
    ends = time.monotonic() + cap_seconds
    while not (answer := await ask()):
        if time.monotonic() > ends:
            raise AssertionError(f"not in {cap_seconds:.0f} s: {what} (last answer: {answer!r})")
        await asyncio.sleep(pause_seconds)
    return answer
