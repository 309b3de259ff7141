"""Logging and the outer frame of a program: signals end it, cleanly."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_encoder = msgspec.json.Encoder(enc_hook=str)


def _render(_logger: object, _method: str, event: Any) -> str:
    return _encoder.encode(event).decode()


class _Stderr:
    """Where nobody reads any more, what is said is lost, and the program goes on."""

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is where records go.

    debug = info = warning = error = critical = exception = msg


def configure_logging(program: str, level: str = "info") -> None:
    """One JSON line a record on stderr, with `program` bound. `level` is a key of LEVELS."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: _Stderr(),
    )
    structlog.contextvars.bind_contextvars(program=program)


async def until_signalled(main: Callable[[], Awaitable[int]]) -> int:
    """Run `main` until it returns its exit code, or SIGTERM/SIGINT cancels it (then 0).

    `main` cleans up in its own `finally`; a second signal ends the process at once.
    """
    task = asyncio.ensure_future(main())
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        task.cancel()
        loop.remove_signal_handler(number)  # The default action comes back: a second one kills.

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        return 0
