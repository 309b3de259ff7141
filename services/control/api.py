"""HTTP handlers of the management API, on the admin listener. Shell: decode, ask, encode.

Which routes there are, and who may call them, is `schemas.api.ROUTES`. Every answer is a frame with the
LOG sequence that it was computed at. A standby answers reads and sends writes on to the leader.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from msgspec import DecodeError, Struct

from schemas import api, codec, frames
from schemas.brake import ReleaseBrake
from schemas.history import RollbackCatalog
from schemas.recovery import Mend
from services.control.brake_command import plan_release
from services.control.commands import Actor, plan_apply, plan_rollback
from services.control.history_api import HistoryApi
from services.control.live import live
from services.control.loop import LogRefuses, Loop, NotLeading, OutcomeUnknown, TooMany
from services.control.mending import plan_mend
from services.control.metrics import registry
from services.control.moment import Moment, Planned
from services.control.pages import PAGES, Page, Seen
from services.control.recovery_api import RecoveryApi
from services.control.tokens import Token, Tokens, allows
from services.log.event_ids import new_event_id
from services.runtime.admin import admin_app

LARGEST_BODY = 4 << 20
"""A catalog in YAML, comments included."""
STATUS_OF = {
    "bad_catalog": 422,
    "bad_request": 400,
    "no_such_model": 404,
    "no_such_revision": 404,
    "not_found": 404,
    "not_kept": 404,
    "not_yet": 404,
    "unavailable": 503,
    "too_large": 413,
    "unauthorized": 401,
    "forbidden": 403,
    "not_leading": 503,
    "too_many": 503,
    "log_refuses": 503,
    "outcome_unknown": 504,
}
"""HTTP status by code; every other refusal is a conflict."""
CONFLICT = 409

R = TypeVar("R", bound=Struct)

Answer = Callable[[web.Request, Token], Awaitable[frames.Frame]]


class Api:
    """The handlers, and what they ask."""

    def __init__(self, loop: Loop, tokens: Tokens) -> None:
        self._loop = loop
        self._tokens = tokens
        self._history = HistoryApi(loop, self._present)
        self._answers: dict[str, Answer] = {
            **{name: self._page(page) for name, page in PAGES.items()},
            **self._history.answers(),
            **RecoveryApi(loop).answers(),
            "apply": self._apply,
            "rollback": self._rollback,
            "brake-off": self._brake_off,
            "mend": self._mend,
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
        trouble = loop.connection.trouble
        if loop.state.log_id:
            return True, trouble
        return False, trouble or "the log has not been read yet"

    def _handler(self, route: api.Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        answer = self._answers[route.name]

        async def handle(request: web.Request) -> web.Response:
            token = self._tokens.holder(_shown(request))
            if token is None:
                return self._refuse("unauthorized", "a token is needed", next_="--token-file FILE")
            if not allows(token.role, route.role):
                message = f"{route.name} needs role {route.role}; this token is {token.role}"
                return self._refuse("forbidden", message)
            if route.method != "GET" and (closed := self._closed(route, request)) is not None:
                return closed
            try:
                if route.has_past and "at" in request.query:
                    return _encoded(await self._history.past(route.name, request))
                return _encoded(await answer(request, token))
            except NotLeading:
                return self._elsewhere(request)
            except LogRefuses as error:
                return self._refuse("log_refuses", "the log takes no write", str(error))
            except TooMany:
                return self._refuse("too_many", "too many commands wait", "nothing was changed")
            except OutcomeUnknown:
                return self._unknown_outcome(route)

        return handle

    def _closed(self, route: api.Route, request: web.Request) -> web.Response | None:
        """Why nothing is changed here and now; None: it may be."""
        loop = self._loop
        if route.name == "recover" and loop.damage is not None:
            return None  # Nobody leads a damaged log, and this is the way out.
        if not loop.leading:
            return self._elsewhere(request)
        if route.name != "recover" and loop.recovering.due(loop.state):
            return self._refuse(
                "recovering",
                "the log is being recovered: nothing is changed before it has a catalog",
                "engines run on, and are handed over",
                "flotilla journal recover",
            )
        return None

    def _unknown_outcome(self, route: api.Route) -> web.Response:
        return self._refuse(
            "outcome_unknown",
            f"{route.name} may or may not have been taken",
            "this control service stopped leading while it was being written",
            "flotilla catalog show",
        )

    def _elsewhere(self, request: web.Request) -> web.Response:
        """To the leader, where there is one; the caller sends the body again."""
        loop = self._loop
        if loop.damage is not None:
            return self._refuse(
                "damaged",
                "the log is damaged: nothing is changed",
                loop.damage.reason,
                "flotilla journal recover",
            )
        held = loop.state.epoch.get(())
        leader = None if held is None else held.document
        if leader is None or leader.holder == loop.leadership.control or not leader.address:
            return self._refuse("not_leading", "no control service leads at this moment")
        location = f"http://{leader.address}{request.path_qs}"
        return web.Response(status=307, headers={"Location": location})

    def _refuse(self, code: str, message: str, why: str = "", next_: str = "") -> web.Response:
        return _encoded(
            frames.Refusal(
                as_of_seq=self._loop.state.sequence, code=code, message=message, why=why, next=next_
            )
        )

    def _refusal(self, code: str, message: str, why: str = "") -> frames.Refusal:
        return frames.Refusal(
            as_of_seq=self._loop.state.sequence, code=code, message=message, why=why
        )

    def _present(self) -> Seen:
        return Seen(self._loop.state, self._loop.current(), live(self._loop, self._tokens))

    def _page(self, page: Page) -> Answer:
        async def answer(request: web.Request, _token: Token) -> frames.Frame:
            return page(self._present(), request.match_info)

        return answer

    async def _apply(self, request: web.Request, token: Token) -> frames.Frame:
        return await self._perform(request, token, api.ApplyCatalog, plan_apply)

    async def _rollback(self, request: web.Request, token: Token) -> frames.Frame:
        return await self._perform(request, token, RollbackCatalog, plan_rollback)

    async def _brake_off(self, request: web.Request, token: Token) -> frames.Frame:
        return await self._perform(request, token, ReleaseBrake, plan_release)

    async def _mend(self, request: web.Request, token: Token) -> frames.Frame:
        return await self._perform(request, token, Mend, plan_mend)

    async def _perform(
        self,
        request: web.Request,
        token: Token,
        kind: type[R],
        plan: Callable[[Moment, R, Actor], Planned],
    ) -> frames.Frame:
        """A command in the next turn, planned from the request's body."""
        body = await _body(request)
        if body is None:
            return self._refusal("too_large", f"more than {LARGEST_BODY} bytes")
        try:
            wanted = codec.decode(body, kind)
        except DecodeError as error:
            return self._refusal("bad_request", "the request cannot be read", str(error))
        actor = Actor(token.name, request.remote or "", new_event_id(self._loop.now()))
        return await self._loop.perform(lambda moment: plan(moment, wanted, actor))


async def _body(request: web.Request) -> bytes | None:
    """None: too large, and not read to its end."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > LARGEST_BODY:
            return None
    return bytes(body)


def _shown(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _encoded(frame: frames.Frame) -> web.Response:
    status = STATUS_OF.get(frame.code, CONFLICT) if isinstance(frame, frames.Refusal) else 200
    return web.Response(body=codec.encode(frame), status=status, content_type="application/json")
