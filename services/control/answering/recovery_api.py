"""Handlers of what follows damage. Shell: decode, ask, encode.

A control whose log is damaged leads nobody, and still answers here: it is the way out.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import DecodeError

from schemas.frames import Frame, Refusal
from schemas.recovery import Recover
from services.control.answering.acting import actor
from services.control.answering.bodies import LARGEST_BODY, read_body
from services.control.answering.orders import understood
from services.control.answering.tokens import Token
from services.control.loop import Loop
from services.log.message import Unavailable

Answer = Callable[[web.Request, Token], Awaitable[Frame]]


class RecoveryApi:
    """The handlers."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def answers(self) -> dict[str, Answer]:
        """By the name of the route."""
        return {"recovery": self._view, "recover": self._recover}

    async def _view(self, _request: web.Request, _token: Token) -> Frame:
        return await self._loop.recovering.view()

    async def _recover(self, request: web.Request, token: Token) -> Frame:
        body = await read_body(request)
        if body is None:
            return self._refusal("too_large", f"more than {LARGEST_BODY} bytes", "")
        try:
            wanted = understood(body, Recover)
        except DecodeError as error:
            return self._refusal("bad_request", "the request cannot be read", str(error))
        who = actor(request, token, self._loop.now())
        try:
            return await self._loop.recovering.beginning.begin(wanted, who)
        except Unavailable as error:
            return self._refusal("unavailable", "the log cannot be asked now", str(error))

    def _refusal(self, code: str, message: str, why: str) -> Refusal:
        return Refusal(as_of_seq=self._loop.state.sequence, code=code, message=message, why=why)
