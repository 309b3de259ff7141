"""The management API over HTTP, by the standard library alone: importing an HTTP framework costs
more than the whole of a verb. The routes come from `schemas.api`, as the server's do.
"""

import http.client
import os
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
from ctl.waiting import told_if_long
from schemas import codec
from schemas.api import ASKED_HEADER, CHANGE_SECONDS, COMMAND_SECONDS, ROUTES, Route
from schemas.frames import Frame, Refusal
from schemas.texts import LONGEST_NAME

F = TypeVar("F", bound=Frame)

ANSWER_SECONDS = 5.0
"""What is only looked at is answered out of memory."""
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


@dataclass(frozen=True)
class _Sending:
    """One request, as it goes to a server, and to another one if that sends it on."""

    route: Route
    where: str
    body: bytes | None
    mark: str
    """Found in the record of a change, whatever became of the answer."""

    @property
    def only_looks(self) -> bool:
        """Nothing is changed by it: it may be asked again, and nobody waits for the log."""
        return self.route.method == "GET"


class Client:
    """One server, one token. Every failure leaves as a `Failure` with its exit code."""

    def __init__(
        self, server: str, token: str | None, token_place: str = "", *, quiet: bool = False
    ) -> None:
        """`quiet`: the caller tells itself what is waited for."""
        self.server = server.rstrip("/")
        self._quiet = quiet
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
        sending = _sending(route, path or {}, query or {}, request)
        patience = seconds or (ANSWER_SECONDS if sending.only_looks else CHANGE_SECONDS)
        with told_if_long(f"waiting for {self.server} to answer {name} …", self._tells(query)):
            return self._read(sending, kind, self._reply(sending, patience))

    def _tells(self, query: Mapping[str, str] | None) -> bool:
        """An answer that the caller asked to be held back is not late."""
        return not self._quiet and "wait" not in (query or {})

    def _reply(self, sending: _Sending, patience: float) -> _Reply:
        reply = self._send(self.server, sending, patience)
        if reply.status not in _REDIRECTS or not reply.location:
            return reply
        leader = urlsplit(reply.location)
        leading = f"{leader.scheme}://{leader.netloc}"
        try:
            return self._send(leading, sending, patience)
        except Failure as failure:
            raise _led_there(failure, self.server, leading) from failure

    def _send(self, server: str, sending: _Sending, patience: float) -> _Reply:
        connection = _connect(server)
        if connection.sock is not None:
            connection.sock.settimeout(patience)
        headers = {"Accept": "application/json"}
        if sending.body is not None:
            headers["Content-Type"] = "application/json"
        if not sending.only_looks:
            headers[ASKED_HEADER] = sending.mark
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(sending.route.method, sending.where, sending.body, headers)
            answer = connection.getresponse()
            return _Reply(server, answer.status, answer.getheader("Location"), answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise _lost(server, sending, _words(error, patience)) from error
        finally:
            connection.close()

    def _read(self, sending: _Sending, kind: type[F], reply: _Reply) -> Answer[F]:
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise self._not_let_in(reply.server)
        if reply.status >= 300:
            raise _refused(sending, reply)
        try:
            return Answer(codec.decode(reply.body, kind), reply.body)
        except msgspec.DecodeError as error:
            raise Failure(
                Exit.UNREACHABLE if sending.only_looks else Exit.OUTCOME_UNKNOWN,
                "not_understood",
                f"{reply.server} gave an answer that this version cannot read",
                why=f"{error}; is that address a Flotilla control service?",
                steps=["flotilla version"] if sending.only_looks else _looks(sending),
            ) from error

    def _not_let_in(self, server: str) -> Failure:
        place = self._token_place or "the token file"
        why = f"{place} holds another one" if self._token else f"there is no {place}"
        if server != self.server:
            why = (
                f"{self.server} says that {server} leads, and knows other tokens: control services "
                "of one fleet are given the same control/tokens.toml"
            )
        return Failure(
            Exit.UNREACHABLE,
            "unauthorized",
            f"{server} asks for a token that it knows",
            why=why,
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
    elsewhere = f"flotilla status --server {shlex.quote(asked)}"
    unknown = failure.exit_code == Exit.OUTCOME_UNKNOWN
    return Failure(
        failure.exit_code,
        failure.code,
        failure.message,
        why=f"{asked} says that {leading} leads" + (f"; {failure.why}" if failure.why else ""),
        steps=[*failure.steps, elsewhere] if unknown else [elsewhere],
    )


def _lost(server: str, sending: _Sending, words: str) -> Failure:
    """Of a change nobody knows what became: its record says so, once control has written or refused it."""
    if sending.only_looks:
        return Failure(Exit.UNREACHABLE, "unreachable", f"no answer from {server}: {words}")
    return Failure(
        Exit.OUTCOME_UNKNOWN,
        "outcome_unknown",
        f"no answer from {server}: {words}; {sending.route.name} may or may not have been taken",
        why=f"it was not, if nothing is told of it within {COMMAND_SECONDS:g} s",
        steps=_looks(sending),
    )


def _looks(sending: _Sending) -> list[str]:
    """A recovery is recorded at its end, in the log that it begins."""
    begun = ["flotilla journal recover"] if sending.route.name == "recover" else []
    return [*begun, f"flotilla events --for command/{sending.mark}"]


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


def _refused(sending: _Sending, reply: _Reply) -> Failure:
    try:
        refusal = codec.decode(reply.body, Refusal)
    except msgspec.DecodeError:
        return _without_words(sending, reply)
    return Failure(
        _EXITS.get(reply.status, Exit.REFUSED),
        refusal.code,
        refusal.message,
        why=refusal.why,
        steps=[refusal.next] if refusal.next else [],
        details=fault_lines(refusal.faults),
    )


def _without_words(sending: _Sending, reply: _Reply) -> Failure:
    """Not by a handler of ours: a proxy, or a fault."""
    told = f"{reply.server} answered {reply.status} to {sending.route.name}"
    if reply.status >= 500 and not sending.only_looks:
        return _lost(reply.server, sending, f"it answered {reply.status}")
    return Failure(_EXITS.get(reply.status, Exit.UNREACHABLE), f"http_{reply.status}", told)


def _sending(
    route: Route, path: Mapping[str, str], query: Mapping[str, str], request: Struct | None
) -> _Sending:
    """Raises Failure: what is given cannot be sent."""
    for name, text in [*path.items(), *query.items()]:
        if len(text) > LONGEST_NAME:
            raise _unfit(f"{name} has {len(text):,} characters; at most {LONGEST_NAME} are taken")
    try:
        where = route.path.format(**{key: quote(value, "") for key, value in path.items()})
        where += f"?{urlencode(query)}" if query else ""
        body = None if request is None else codec.encode(request)
        if request is not None and body is not None:
            codec.decode(body, type(request))
    except UnicodeEncodeError as error:
        raise _unfit("what is given is not UTF-8 text") from error
    except msgspec.ValidationError as error:
        raise _unfit(f"{route.name} cannot be asked so: {error}") from error
    return _Sending(route, where, body, os.urandom(16).hex())


def _unfit(message: str) -> Failure:
    return Failure(Exit.USAGE, "unfit", message)
