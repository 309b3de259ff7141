"""The management API over HTTP, by the standard library alone: importing an HTTP framework costs
more than the whole of a verb. The routes come from `schemas.api`, as the server's do.
"""

import http.client
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from ctl.failure import Exit, Failure
from ctl.faults import fault_lines
from schemas import codec
from schemas.api import ROUTES, Route
from schemas.frames import Frame, Refusal

F = TypeVar("F", bound=Frame)

ANSWER_SECONDS = 5.0
"""A verb never waits longer for one answer."""
_REDIRECTS = {307, 308}


@dataclass(frozen=True)
class Answer(Generic[F]):
    """A decoded frame, and the bytes that it came as: what this version does not know is still there."""

    frame: F
    body: bytes


@dataclass(frozen=True)
class _Reply:
    server: str
    """Who gave it: after a redirect another than was asked."""
    status: int
    location: str | None
    body: bytes


class Client:
    """One server, one token. Every failure leaves as a `Failure` with its exit code."""

    def __init__(self, server: str, token: str | None, token_place: str = "") -> None:
        self.server = server.rstrip("/")
        self._token = token
        self._token_place = token_place
        """Where it was looked for; told when the server does not accept it."""

    def ask(
        self,
        name: str,
        kind: type[F],
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        request: Struct | None = None,
        seconds: float | None = None,
    ) -> Answer[F]:
        """Call the route `name`; a standby's redirect to the leader is followed once.

        `seconds`: how long an answer may take, where that is known to be more than usual.
        """
        route = next(route for route in ROUTES if route.name == name)
        where = route.path.format(**{key: quote(value, "") for key, value in (path or {}).items()})
        where += f"?{urlencode(query)}" if query else ""
        body = None if request is None else codec.encode(request)
        patience = ANSWER_SECONDS if seconds is None else seconds
        reply = self._send(self.server, route, where, body, patience)
        if reply.status in _REDIRECTS and reply.location:
            leader = urlsplit(reply.location)
            leading = f"{leader.scheme}://{leader.netloc}"
            try:
                reply = self._send(leading, route, where, body, patience)
            except Failure as failure:
                raise _led_there(failure, self.server, leading) from failure
        return self._read(route, kind, reply)

    def _send(
        self, server: str, route: Route, where: str, body: bytes | None, patience: float
    ) -> _Reply:
        connection = _connect(server)
        if connection.sock is not None:
            connection.sock.settimeout(patience)
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(route.method, where, body, headers)
            answer = connection.getresponse()
            return _Reply(server, answer.status, answer.getheader("Location"), answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise _lost(server, route, error, patience) from error
        finally:
            connection.close()

    def _read(self, route: Route, kind: type[F], reply: _Reply) -> Answer[F]:
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise self._not_let_in(reply.server)
        if reply.status >= 300:
            raise _refused(route, reply)
        try:
            return Answer(codec.decode(reply.body, kind), reply.body)
        except msgspec.DecodeError as error:
            raise Failure(
                Exit.UNREACHABLE,
                "not_understood",
                f"{reply.server} gave an answer that this version cannot read",
                why=f"{error}; is that address a Flotilla control service?",
                steps=["flotilla version"],
            ) from error

    def _not_let_in(self, server: str) -> Failure:
        place = self._token_place or "the token file"
        return Failure(
            Exit.UNREACHABLE,
            "unauthorized",
            f"{server} asks for a token that it knows",
            why=f"{place} holds another one" if self._token else f"there is no {place}",
            steps=["flotilla status --token-file FILE"],
        )


def _connect(server: str) -> http.client.HTTPConnection:
    """Connected, or a Failure: nothing has been sent yet, so the outcome is known."""
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Failure(
            Exit.USAGE, "bad_server", f"`{server}` is not a server address", why="http://host:port"
        )
    maker = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = maker(parts.hostname, parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.connect()
    except OSError as error:
        raise Failure(
            Exit.UNREACHABLE,
            "unreachable",
            f"cannot reach {server}: {_words(error, ANSWER_SECONDS)}",
            why="no control service answers there; routers keep serving their last endpoints",
            steps=["flotilla up", "flotilla status --server http://HOST:PORT"],
        ) from error
    return connection


def _led_there(failure: Failure, asked: str, leading: str) -> Failure:
    """The same failure, which is of a server that the caller did not name."""
    return Failure(
        failure.exit_code,
        failure.code,
        failure.message,
        why=f"{asked} says that {leading} leads" + (f"; {failure.why}" if failure.why else ""),
        steps=[f"flotilla status --server {shlex.quote(asked)}"],
    )


def _lost(server: str, route: Route, error: Exception, patience: float) -> Failure:
    words = _words(error, patience)
    if route.method == "GET":
        return Failure(Exit.UNREACHABLE, "unreachable", f"no answer from {server}: {words}")
    return Failure(
        Exit.OUTCOME_UNKNOWN,
        "outcome_unknown",
        f"no answer from {server}: {words}; the command may or may not have been taken",
        steps=["flotilla status", "flotilla catalog show"],
    )


def _words(error: Exception, patience: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {patience:g} s"
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__


_EXITS = {
    400: Exit.USAGE,
    403: Exit.UNREACHABLE,
    404: Exit.NOT_FOUND,
    409: Exit.REFUSED,
    413: Exit.USAGE,
    422: Exit.USAGE,
    503: Exit.UNREACHABLE,
    504: Exit.OUTCOME_UNKNOWN,
}


def _refused(route: Route, reply: _Reply) -> Failure:
    try:
        refusal = codec.decode(reply.body, Refusal)
    except msgspec.DecodeError:
        return _without_words(reply.server, route, reply.status)
    return Failure(
        _EXITS.get(reply.status, Exit.REFUSED),
        refusal.code,
        refusal.message,
        why=refusal.why,
        steps=[refusal.next] if refusal.next else [],
        details=fault_lines(refusal.faults),
    )


def _without_words(server: str, route: Route, status: int) -> Failure:
    unknown = route.method != "GET" and status >= 500
    exit_code = Exit.OUTCOME_UNKNOWN if unknown else _EXITS.get(status, Exit.UNREACHABLE)
    return Failure(exit_code, f"http_{status}", f"{server} answered {status} to {route.name}")
