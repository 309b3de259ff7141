"""HTTP handlers of the management API, on the admin listener. Shell: decode, ask, encode.

Which routes there are, and who may call them, is `schemas.api.ROUTES`. Every answer is a frame with the
LOG sequence that it was computed at. A standby answers reads and sends writes on to the leader. Pages
of a large fleet are computed beside the event loop, one at a time, as passes over it are.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from schemas import api, codec, frames
from services.control.answering.acting import actor
from services.control.answering.bodies import LARGEST_BODY, read_body
from services.control.answering.history_api import HistoryApi
from services.control.answering.live import live
from services.control.answering.metrics import registry
from services.control.answering.orders import ORDERS, UNREAD, carry_out, not_here, refusal
from services.control.answering.pages import PAGES, Page, Seen
from services.control.answering.queries import fault as query_fault
from services.control.answering.recovery_api import RecoveryApi
from services.control.answering.tokens import Token, Tokens, allows
from services.control.deciding.pace import is_small
from services.control.loop import Loop
from services.control.requests import NotLeading
from services.runtime.admin import admin_app

STATUS_OF = {
    "bad_catalog": 422,
    "bad_request": 400,
    "no_such_model": 404,
    "no_such_revision": 404,
    "not_found": 404,
    "not_kept": 404,
    "unavailable": 503,
    "too_large": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "not_leading": 503,
    "too_many": 503,
    "log_refuses": 503,
    "outcome_unknown": 504,
    "failed": 500,
}
"""HTTP status by code; every other refusal is a conflict."""
CONFLICT = 409
SHOW_ONE = "flotilla status --token-file FILE"


Answer = Callable[[web.Request, Token], Awaitable[frames.Frame]]


class Api:
    """The handlers, and what they ask."""

    def __init__(self, loop: Loop, tokens: Tokens) -> None:
        self._loop = loop
        self._tokens = tokens
        self._one_page = asyncio.Lock()
        """Of a large fleet: no number of readers keeps the state from being changed."""
        self._history = HistoryApi(loop, self._present)
        self._answers: dict[str, Answer] = {
            **{name: self._page(page) for name, page in PAGES.items()},
            **self._history.answers(),
            **RecoveryApi(loop).answers(),
            **{name: self._order(name) for name in ORDERS},
        }

    def app(self) -> web.Application:
        """Health, metrics and every route of the table."""
        app = admin_app(lambda: True, self._ready, registry(self._loop))
        for route in api.ROUTES:
            app.router.add_route(route.method, route.path, self._handler(route))
        return app

    def _ready(self) -> tuple[bool, str]:
        loop = self._loop
        if loop.damage is not None:
            return False, loop.damage.reason
        trouble = loop.connection.trouble or loop.writing.refused
        if loop.state.log_id:
            return True, trouble
        return False, trouble or "the log has not been read yet"

    def _handler(self, route: api.Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        answer, loop = self._answers[route.name], self._loop

        async def handle(request: web.Request) -> web.Response:
            token = self._tokens.holder(_shown(request))
            if token is None:
                return _encoded(refusal(loop, "unauthorized", "a token is needed", next_=SHOW_ONE))
            if not allows(token.role, route.role):
                message = f"{route.name} needs role {route.role}; this token is {token.role}"
                return _encoded(refusal(loop, "forbidden", message))
            if fault := query_fault(route, request.match_info, request.query.items()):
                return _encoded(refusal(loop, "bad_request", UNREAD, fault))
            if route.method != "GET" and (closed := self._closed(route, request)) is not None:
                return closed
            try:
                if route.has_past and "at" in request.query:
                    return _encoded(await self._history.past(route.name, request))
                return _encoded(await answer(request, token))
            except NotLeading:
                return self._elsewhere(request)

        return handle

    def _closed(self, route: api.Route, request: web.Request) -> web.Response | None:
        """Why nothing is changed here and now; None: it may be."""
        if route.name == "recover" and self._loop.damage is not None:
            return None  # Nobody leads a damaged log, and this is the way out.
        return None if self._loop.leading else self._elsewhere(request)

    def _elsewhere(self, request: web.Request) -> web.Response:
        """To the leader, where there is one; the caller sends the body again."""
        loop = self._loop
        held = loop.state.epoch.get(())
        leader = None if held is None else held.document
        led = leader is not None and leader.holder != loop.leadership.control and leader.address
        if leader is None or not led or loop.damage is not None:
            return _encoded(not_here(loop))
        location = f"http://{leader.address}{request.path_qs}"
        return web.Response(status=307, headers={"Location": location})

    def _present(self) -> Seen:
        return Seen(self._loop.state, self._loop.current(), live(self._loop, self._tokens))

    def _page(self, page: Page) -> Answer:
        async def answer(request: web.Request, _token: Token) -> frames.Frame:
            if is_small(self._loop.state):
                return page(self._present(), request.match_info)
            async with self._one_page, self._loop.state_rests:
                return await asyncio.to_thread(page, self._present(), dict(request.match_info))

        return answer

    def _order(self, name: str) -> Answer:
        async def answer(request: web.Request, token: Token) -> frames.Frame:
            body = await read_body(request)
            if body is None:
                return refusal(self._loop, "too_large", f"more than {LARGEST_BODY} bytes")
            who = actor(request, token, self._loop.now())
            return await carry_out(self._loop, name, body, who)

        return answer


def _shown(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _encoded(frame: frames.Frame) -> web.Response:
    status = STATUS_OF.get(frame.code, CONFLICT) if isinstance(frame, frames.Refusal) else 200
    return web.Response(body=codec.encode(frame), status=status, content_type="application/json")
