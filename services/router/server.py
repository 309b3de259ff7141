"""aiohttp's server, with refusals of its own in the router's words: of what is no proper HTTP.

They are the client's mistakes: they make no noise in the log and do not say what this server is made
of.
"""

import sys
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.router import openai

KEEP_ALIVE_SECONDS = 75.0
_REASON_CHARACTERS = 200

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Server(web.Server):
    """Hands every request to `handle`, and cancels it when the client leaves."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(
            handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )

    def __call__(self) -> web.RequestHandler:
        """For a new connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def log_exception(self, *args: object, **_named: object) -> None:
        """Called for whatever ends a connection; a body that cannot be read is the client's doing."""
        error = sys.exception()
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            log.error("router.connection_failed", what=args[:1], exc_info=error)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called for what cannot be read, and for what a handler let through."""
        if status >= 500:
            log.error("router.request_failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has been begun")
        error = openai.internal() if status >= 500 else openai.bad_request(_reason(message))
        response = web.Response(
            status=status,
            body=error.body(),
            content_type="application/json",
            headers={"Server": openai.SERVER},
        )
        response.force_close()
        return response


def _reason(message: str | None) -> str:
    """Without the bytes that aiohttp shows."""
    said = (message or "").strip().partition("\n")[0].rstrip(":")
    return f"The request cannot be read: {said[:_REASON_CHARACTERS] or 'it is no proper HTTP'}."
