"""The client-facing door: aiohttp's server in front of the proxy, and the model list.

Nothing here is about management, and nothing names a node, an address or a replica. Errors have
OpenAI's shape. Bodies are read whole, up to a cap that is checked before the first byte is read.
"""

import asyncio
from collections.abc import Sequence

import structlog
from aiohttp import ClientConnectionResetError, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from schemas import codec
from schemas.catalog import Model
from schemas.ids import ModelName
from services.router import openai
from services.router.endpoints import Table
from services.router.exchange import ClientGone, Request
from services.router.failures import refuse
from services.router.headers import Header
from services.router.openai import MODELS_PATH, ROUTES, ApiError, Forwarded, ModelObject, ModelPage
from services.router.proxy import Proxy
from services.router.server import Server

SHUTDOWN_SECONDS = 2.0
"""For answers to be flushed at the end; before it, requests have been given time to finish."""

BODY_SILENCE_SECONDS = 60.0
"""Between two pieces of a request's body."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class AiohttpSink:
    """An answer through aiohttp."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._response = web.StreamResponse()
        self._bodiless = request.method == "HEAD"

    @property
    def response(self) -> web.StreamResponse:
        """For aiohttp to finish."""
        return self._response

    async def start(
        self, status: int, headers: Sequence[Header], length: int | None, close: bool = False
    ) -> None:
        response = self._response
        response.set_status(status)
        for name, value in headers:
            response.headers.add(name.decode("latin-1"), value.decode(errors="replace"))
        response.headers["Server"] = openai.SERVER
        if length is not None:
            response.content_length = length
        if close or (length is None and self._request.version < HttpVersion11):
            response.force_close()  # HTTP/1.0 knows no chunks: the end is the connection's.
        try:
            await response.prepare(self._request)
        except (ConnectionResetError, ClientConnectionResetError) as error:
            raise ClientGone from error

    async def write(self, data: bytes) -> None:
        if self._bodiless:
            return
        try:
            await self._response.write(data)
        except (ConnectionResetError, ClientConnectionResetError) as error:
            raise ClientGone from error

    async def end(self) -> None:
        try:
            await self._response.write_eof()
        except (ConnectionResetError, ClientConnectionResetError) as error:
            raise ClientGone from error

    def cut(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


class ClientDoor:
    """Every request of the client-facing port comes here."""

    def __init__(self, table: Table, proxy: Proxy, max_body: int) -> None:
        self._table = table
        self._proxy = proxy
        self._max_body = max_body
        """Bytes."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The one handler."""
        sink = AiohttpSink(request)
        try:
            await self._dispatch(request, sink)
        except ClientGone:
            pass  # aiohttp finds out by itself when it finishes the response.
        except Exception:  # The outermost edge of a request.
            log.exception("router.request_failed", path=request.path)
            await self._give_up(sink)
        return sink.response

    async def _dispatch(self, request: web.BaseRequest, sink: AiohttpSink) -> None:
        route = ROUTES.get(request.path)
        if route is not None:
            await self._forward(route, request, sink)
        elif request.path == MODELS_PATH or request.path.startswith(MODELS_PATH + "/"):
            await self._models(request, sink)
        else:
            await refuse(sink, openai.unknown_path(request.method, request.path))

    async def _forward(self, route: Forwarded, request: web.BaseRequest, sink: AiohttpSink) -> None:
        if request.method != "POST":
            await refuse(sink, openai.wrong_method(request.method, request.path))
            return
        body = await self._read(request)
        if isinstance(body, ApiError):
            await refuse(sink, body, close=True)
            return
        query = request.rel_url.raw_query_string
        target = f"{route.path}?{query}" if query else route.path
        await self._proxy.forward(route, Request(target, request.raw_headers, body), sink)

    async def _read(self, request: web.BaseRequest) -> bytes | ApiError:
        if (request.content_length or 0) > self._max_body:
            return openai.too_large(self._max_body)
        if _waits_for_leave(request):
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        parts: list[bytes] = []
        size = 0
        try:
            while part := await _next_part(request):
                size += len(part)
                if size > self._max_body:
                    return openai.too_large(self._max_body)
                parts.append(part)
        except TimeoutError:
            return openai.too_slow(BODY_SILENCE_SECONDS)
        except (web.RequestPayloadError, HttpProcessingError):
            return openai.bad_request("The request body cannot be read.")
        return b"".join(parts)

    async def _models(self, request: web.BaseRequest, sink: AiohttpSink) -> None:
        if request.method != "GET":
            await refuse(sink, openai.wrong_method(request.method, request.path))
            return
        if not self._table.known:
            await refuse(sink, openai.starting())
            return
        name = request.path.removeprefix(MODELS_PATH).removeprefix("/")
        answer = self._model(name) if name else self._model_page()
        if isinstance(answer, ApiError):
            await refuse(sink, answer)
            return
        content = codec.encode(answer)
        await sink.start(200, [(b"content-type", b"application/json")], len(content))
        await sink.write(content)
        await sink.end()

    def _model(self, name: str) -> ModelObject | ApiError:
        model = self._table.catalog.resolve(name)
        return openai.model_not_found(name) if model is None else ModelObject(id=ModelName(name))

    def _model_page(self) -> ModelPage:
        listed = (m for m in self._table.catalog.models.values() if not m.hidden)
        return ModelPage(data=tuple(ModelObject(id=name) for m in listed for name in _names(m)))

    async def _give_up(self, sink: AiohttpSink) -> None:
        if sink.response.prepared:
            sink.cut()
            return
        try:
            await refuse(sink, openai.internal(), close=True)
        except ClientGone:
            sink.cut()


async def _next_part(request: web.BaseRequest) -> bytes:
    """Empty: it is whole. Raises TimeoutError."""
    content = request.content
    if content.is_eof():
        return await content.readany()
    async with asyncio.timeout(BODY_SILENCE_SECONDS):
        return await content.readany()


def _waits_for_leave(request: web.BaseRequest) -> bool:
    expected = request.headers.get("Expect", "").lower()
    return expected == "100-continue" and request.version >= HttpVersion11


def _names(model: Model) -> tuple[ModelName, ...]:
    return (model.name, *model.aliases)


async def listen(door: ClientDoor, address: str) -> web.ServerRunner:
    """Serve on `host:port`. Raises OSError when it is taken."""
    host, _, port = address.rpartition(":")
    runner = web.ServerRunner(
        Server(door.handle), handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port), backlog=1024).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
