"""HTTP handlers of the management API, on the admin listener. Shell: decode, ask, encode.

Which routes there are, and who may call them, is `schemas.api.ROUTES`. Every answer is a frame with the
LOG sequence that it was computed at. A standby answers reads and sends writes on to the leader.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from urllib.parse import unquote

from aiohttp import web
from msgspec import DecodeError, Raw

from schemas import api, codec, frames
from services.control.commands import Actor, plan_apply
from services.control.explaining import explain_model
from services.control.loop import LogRefuses, Loop, NotLeading, OutcomeUnknown, TooMany
from services.control.metrics import registry
from services.control.tokens import Token, Tokens, allows
from services.fleet import views
from services.fleet.views import Live
from services.log.event_ids import new_event_id
from services.runtime.admin import admin_app

LARGEST_BODY = 4 << 20
"""A catalog in YAML, comments included."""
ROUTER_SHOWN_SECONDS = 10.0
STATUS_OF = {
    "bad_catalog": 422,
    "bad_request": 400,
    "no_such_model": 404,
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

Answer = Callable[[web.Request, Token], Awaitable[frames.Frame]]


class Api:
    """The handlers, and what they ask."""

    def __init__(self, loop: Loop, tokens: Tokens) -> None:
        self._loop = loop
        self._tokens = tokens
        self._answers: dict[str, Answer] = {
            "status": self._status,
            "nodes": self._nodes,
            "replicas": self._replicas,
            "models": self._models,
            "catalog": self._catalog,
            "apply": self._apply,
            "explain": self._explain,
            "state": self._state,
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
            if route.method != "GET" and not self._loop.leading:
                return self._elsewhere(request)
            try:
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
                "damaged", "the log is damaged: nothing is changed", loop.damage.reason
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

    def _live(self) -> Live:
        loop = self._loop
        held = loop.state.epoch.get(())
        trouble = loop.connection.trouble
        if trouble and not loop.connection.connected:
            trouble = f"NATS is away: this is the last known state; {trouble}"
        away = (trouble,) if trouble else ()
        refused = (
            (f"the log refused a write: {loop.writing.refused}",) if loop.writing.refused else ()
        )
        forgetful = (
            (f"the disk does not hold how far the log was followed: {loop.not_remembered}",)
            if loop.not_remembered
            else ()
        )
        return Live(
            now=loop.now(),
            leading=loop.leading,
            leader="" if held is None else held.document.holder,
            damage=loop.damage,
            routers=self._routers(),
            damaged_agents=loop.ears.damaged_agents(),
            warnings=away + refused + forgetful + loop.opener.warnings,
            catalog_refused=loop.current().refused,
        )

    def _routers(self) -> tuple[api.RouterRow, ...]:
        now = monotonic()
        return tuple(
            api.RouterRow(
                router=beat.router,
                incarnation=beat.incarnation,
                applied=beat.applied,
                heard_seconds_ago=round(now - at, 3),
                damaged=beat.damaged,
            )
            for _, (beat, at) in sorted(self._loop.ears.routers.items(), key=lambda item: item[0])
            if now - at < ROUTER_SHOWN_SECONDS
        )

    async def _status(self, _request: web.Request, _token: Token) -> frames.Frame:
        return views.status(self._loop.state, self._loop.current().catalog, self._live())

    async def _nodes(self, _request: web.Request, _token: Token) -> frames.Frame:
        state = self._loop.state
        return api.NodeList(as_of_seq=state.sequence, items=views.nodes(state, self._live()))

    async def _replicas(self, _request: web.Request, _token: Token) -> frames.Frame:
        state = self._loop.state
        return api.ReplicaList(as_of_seq=state.sequence, items=views.replicas(state, self._live()))

    async def _models(self, _request: web.Request, _token: Token) -> frames.Frame:
        state = self._loop.state
        rows = views.models(state, self._loop.current().catalog)
        return api.ModelList(as_of_seq=state.sequence, items=rows)

    async def _catalog(self, _request: web.Request, _token: Token) -> frames.Frame:
        state, current = self._loop.state, self._loop.current()
        pointer = state.catalog.get(())
        return api.CatalogView(
            as_of_seq=state.sequence,
            revision=current.revision,
            hash=current.catalog.hash,
            author="" if pointer is None else pointer.document.author,
            source=current.catalog.source(),
        )

    async def _explain(self, request: web.Request, _token: Token) -> frames.Frame:
        name = unquote(request.match_info["model"])
        model = self._loop.current().catalog.resolve(name)
        if model is None:
            known = ", ".join(self._loop.current().catalog.models) or "none"
            return self._refusal("no_such_model", f"no model {name}", f"the catalog has {known}")
        return explain_model(self._loop.state, model)

    async def _state(self, _request: web.Request, _token: Token) -> frames.Frame:
        state = self._loop.state
        return api.StateDump(as_of_seq=state.sequence, state=Raw(state.dump()))

    async def _apply(self, request: web.Request, token: Token) -> frames.Frame:
        body = await _body(request)
        if body is None:
            return self._refusal("too_large", f"more than {LARGEST_BODY} bytes")
        try:
            wanted = codec.decode(body, api.ApplyCatalog)
        except DecodeError as error:
            return self._refusal("bad_request", "the request cannot be read", str(error))
        actor = Actor(token.name, request.remote or "", new_event_id(self._loop.now()))
        return await self._loop.perform(lambda moment: plan_apply(moment, wanted, actor))


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
