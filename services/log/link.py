# pyright: basic
"""One physical link to NATS, from connect to loss. The only file that imports nats.

How it fails, and what callers see:
- It cannot be opened: NoLink with the reason in words: nobody there, another password, a certificate
  that is not trusted, a server without TLS where TLS is wanted (nothing is said to that one).
- It is lost: `lost` is set, and whatever waits for an answer gets Unavailable at once.
- NATS denies a publish: the request that it belongs to gets Denied at once. A subscription that is
  denied, and a publish that asks for no answer: only `on_denied` is told.
"""

import asyncio
import itertools
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

import structlog

from services.lean import without
from services.log.door import Door, Shut
from services.log.message import Denied, Message, Unavailable

with without("aiohttp"):  # For WebSockets, which are not used here: a quarter of a second.
    import nats.errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

log = structlog.get_logger()

Handler = Callable[[Message], None]

CONNECT_TIMEOUT_SECONDS = 2

UNSENT = (nats.errors.Error, OSError)
_ENDS_LINK = (
    nats.errors.UnexpectedEOF,
    nats.errors.StaleConnectionError,
    nats.errors.ProtocolError,
    OSError,
)
_DENIED = re.compile(r'permissions violation for (publish|subscription)[a-z ]* "([^"]*)"')
"""In nats-py's words, which are the server's in lower case, subjects too."""


class NoLink(Exception):
    """There is no link, and why."""


class _NoTls(nats.errors.Error):
    pass


class _Client(Client):
    """nats-py says all it knows, the password too, to a server that offers no TLS where it is wanted."""

    wants_tls = False

    def _connect_command(self) -> bytes:
        if self.wants_tls and not self._server_info.get("tls_required"):
            raise _NoTls("the server offers no TLS, and nothing is said to it without")
        return super()._connect_command()


class _Awaited(NamedTuple):
    subject: str
    """Asked."""
    answer: asyncio.Future[Message]


class Link:
    """`open` it once. Requests go through one inbox."""

    def __init__(
        self,
        door: Door,
        on_mistake: Callable[[Exception], None],
        on_denied: Callable[[Denied], None],
    ) -> None:
        self.lost = asyncio.Event()
        self._door = door
        self._client = _Client()
        self._client.wants_tls = door.secure
        self._on_mistake = on_mistake
        self._on_denied = on_denied
        self._inbox = ""
        self._awaited: dict[str, _Awaited] = {}
        self._tokens = itertools.count()
        self._last_error: Exception | None = None

    async def open(self, name: str) -> None:
        """Raises NoLink."""
        try:
            await self._open(name)
        except Exception as error:  # nats-py raises what it likes.
            raise NoLink(self._why(error)) from error

    async def _open(self, name: str) -> None:
        door, context = self._door, self._door.context()
        await self._client.connect(
            door.url.split(","),
            name=name,
            user=door.user or None,
            password=door.password(),
            inbox_prefix=door.inbox,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            ping_interval=5,
            pending_size=-1,  # Nothing is held back for a later link.
            error_cb=self._on_error,
            closed_cb=self._on_closed,
            tls=context,
        )
        self._inbox = self._client.new_inbox()
        await self.subscribe(self._inbox + ".*", self._on_reply)

    def _why(self, error: Exception) -> str:
        if isinstance(error, nats.errors.NoServersError) and self._last_error is not None:
            error = self._last_error
        match error:
            case Shut() | _NoTls():
                return str(error)
            case ssl.SSLCertVerificationError():
                return f"the server's certificate is not trusted: {error.verify_message}"
            case ssl.SSLError():
                return f"no TLS with the server: {error.reason or error}"
            case nats.errors.Error() if "authorization violation" in str(error).lower():
                return self._not_let_in()
            case TimeoutError():
                return f"no answer within {CONNECT_TIMEOUT_SECONDS} s"
        return str(error) or type(error).__name__

    def _not_let_in(self) -> str:
        if not self._door.user:
            return "NATS asks for a user: nats.user and nats.password-file"
        return (
            f"NATS does not let user {self._door.user} in: it was revoked, "
            f"or {self._door.password_file} holds another password"
        )

    @property
    def alive(self) -> bool:
        """As far as is known."""
        return self._client.is_connected and not self.lost.is_set()

    @property
    def cluster(self) -> str:
        """See `Connection.cluster`."""
        return str(self._client._server_info.get("cluster") or "")  # No public way.

    async def subscribe(self, subject: str, handler: Handler) -> NatsSubscription:
        """Raises one of UNSENT."""

        async def deliver(raw: Msg) -> None:
            try:
                handler(Message(raw.subject, raw.data, raw.headers or {}, raw.reply))
            except Exception as error:  # noqa: BLE001 - must not end nats-py's reading task.
                self._on_mistake(error)

        # No limits: what a slow reader has not taken yet is dropped by nats-py otherwise.
        return await self._client.subscribe(
            subject, cb=deliver, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def publish(
        self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None
    ) -> bool:
        """False: nothing was sent."""
        try:
            await self._client.publish(
                subject, payload, reply, None if headers is None else dict(headers)
            )
        except nats.errors.MaxPayloadError as error:
            raise ValueError(
                f"{subject}: {len(payload)} bytes are over the server's limit"
            ) from error
        except UNSENT:
            return False
        return True

    async def request(
        self,
        subject: str,
        payload: bytes,
        timeout_seconds: float,
        headers: Mapping[str, str] | None,
    ) -> Message:
        """Raises Unavailable, Denied among it."""
        with self._expected(subject) as (inbox, answer):
            await self._send(subject, payload, inbox, headers)
            return await _within(timeout_seconds, answer, f"no answer from {subject}")

    async def round_trip(self, timeout_seconds: float) -> None:
        """Everything sent before has been taken by the server once this returns, or denied."""
        with self._expected() as (inbox, back):
            await self._send(inbox, b"", "", None)
            await _within(timeout_seconds, back, "no round trip to NATS")

    @contextmanager
    def _expected(self, subject: str = "") -> Iterator[tuple[str, asyncio.Future[Message]]]:
        """Without a subject: the inbox is what is asked."""
        token = f"{next(self._tokens):x}"
        inbox = f"{self._inbox}.{token}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._awaited[token] = _Awaited(subject or inbox, answer)
        try:
            yield inbox, answer
        finally:
            del self._awaited[token]

    async def _send(
        self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None
    ) -> None:
        if not self.alive or not await self.publish(subject, payload, reply, headers):
            raise Unavailable(f"not sent to {subject}: no connection to NATS")

    def _on_reply(self, message: Message) -> None:
        awaited = self._awaited.get(message.subject.rpartition(".")[2])
        if awaited is not None and not awaited.answer.done():
            awaited.answer.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        if found := _DENIED.search(str(error)):
            denied = Denied(
                "publish" if found[1] == "publish" else "subscribe", found[2], self._door.user
            )
            self._deny(denied)
        elif self._client.is_connected and isinstance(error, _ENDS_LINK):
            self.lost.set()

    def _deny(self, denied: Denied) -> None:
        """Rights are a subject's: whatever else was asked there under way is denied as well."""
        lowered = denied.subject
        if denied.verb == "publish":
            for awaited in self._awaited.values():
                if awaited.subject.lower() == lowered and not awaited.answer.done():
                    denied = Denied("publish", awaited.subject, self._door.user)
                    awaited.answer.set_exception(denied)
        self._on_denied(denied)

    async def _on_closed(self) -> None:
        self.lost.set()

    async def close(self) -> None:
        """Ends the link and everything that waits on it."""
        self.lost.set()
        for _, answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(Unavailable("connection to NATS lost"))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._client.close()
        except Exception as error:  # noqa: BLE001 - broken already, or never opened: it is over.
            log.debug("nats.not_closed", reason=str(error) or type(error).__name__)


async def unsubscribe(subscription: NatsSubscription) -> None:
    """The link may be gone, and the interest with it."""
    with suppress(*UNSENT):
        await subscription.unsubscribe()


async def _within(seconds: float, answer: Awaitable[Message], otherwise: str) -> Message:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise Unavailable(f"{otherwise} in {seconds:g} s") from None
