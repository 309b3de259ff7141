# pyright: basic
"""One connection to NATS that never gives up: the only file that imports nats.

Each physical link is a fresh nats-py client without its own reconnecting; this class makes the next
one, subscribes again and only then counts up `generation`. So nothing of a lost link survives it: no
buffered writes, no half-dead read loop, no client closed for good by an error of the server.

How it fails, and what callers see:
- NATS away, also from the start: it keeps trying, with jittered back-off up to 2 s. `publish` returns
  False and sends nothing; `request` and `barrier` raise Unavailable, those in flight at once.
- A link that is open but dead (frozen server, dead read loop, silent network): a round trip every
  2 s; two lost in a row end the link.
- Messages of subscriptions that come while the link is down are lost. Who must not lose any compares
  `generation` or uses `on_change`, and reads again (Tail, Follower).
- A handler or `on_change` callback that raises is a mistake of ours: it goes to the event loop's
  exception handler; the connection lives on. So does a mistake that ends the connection's own task.
"""

import asyncio
import itertools
import random  # noqa: TID251 - jitter of reconnects, repeated by nobody.
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from services.log.message import NO_RESPONDERS, Message, Reply, Unavailable, status

__all__ = ["Connection", "Handler", "Message", "Reply", "Subscription", "Unavailable"]

log = structlog.get_logger()

Handler = Callable[[Message], None]

CONNECT_TIMEOUT_SECONDS = 2
PROBE_SECONDS = 2.0
"""Between two round trips, and how long each may take."""
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0

_UNSENT = (nats.errors.Error, OSError)
_ENDS_LINK = (
    nats.errors.UnexpectedEOF,
    nats.errors.StaleConnectionError,
    nats.errors.ProtocolError,
    OSError,
)


class Subscription:
    """Interest in a subject that survives reconnects."""

    def __init__(self, connection: "Connection", subject: str, handler: Handler) -> None:
        self.subject = subject
        self._connection = connection
        self._handler = handler
        self._link: _Link | None = None
        self._inner: NatsSubscription | None = None

    async def attach(self, link: "_Link") -> None:
        """Subscribe on a new link; nothing to do if it is already."""
        if self._link is not link:
            self._link = link
            self._inner = await link.subscribe(self.subject, self._handler)

    async def close(self) -> None:
        """No message is handed over after this."""
        self._connection.forget(self)
        inner, self._inner = self._inner, None
        if inner is not None:
            with suppress(*_UNSENT):  # The link may be gone, and the interest with it.
                await inner.unsubscribe()


class _Link:
    """One physical connection, from connect to loss. Requests go through one inbox."""

    def __init__(self, on_mistake: Callable[[Exception], None]) -> None:
        self.lost = asyncio.Event()
        self._client = Client()
        self._on_mistake = on_mistake
        self._inbox = ""
        self._awaited: dict[str, asyncio.Future[Message]] = {}
        self._tokens = itertools.count()

    async def open(self, url: str, name: str) -> None:
        await self._client.connect(
            url.split(","),
            name=name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            ping_interval=5,
            pending_size=-1,  # Nothing is held back for a later link.
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        self._inbox = self._client.new_inbox()
        await self.subscribe(self._inbox + ".*", self._on_reply)

    @property
    def alive(self) -> bool:
        return self._client.is_connected and not self.lost.is_set()

    @property
    def cluster(self) -> str:
        return str(self._client._server_info.get("cluster") or "")  # No public way.

    async def subscribe(self, subject: str, handler: Handler) -> NatsSubscription:
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
        try:
            await self._client.publish(
                subject, payload, reply, None if headers is None else dict(headers)
            )
        except nats.errors.MaxPayloadError as error:
            raise ValueError(
                f"{subject}: {len(payload)} bytes are over the server's limit"
            ) from error
        except _UNSENT:
            return False
        return True

    async def request(
        self,
        subject: str,
        payload: bytes,
        timeout_seconds: float,
        headers: Mapping[str, str] | None,
    ) -> Message:
        with self._expected() as (inbox, answer):
            await self._send(subject, payload, inbox, headers)
            return await _within(timeout_seconds, answer, f"no answer from {subject}")

    async def round_trip(self, timeout_seconds: float) -> None:
        """Everything sent before has been taken by the server once this returns."""
        with self._expected() as (inbox, back):
            await self._send(inbox, b"", "", None)
            await _within(timeout_seconds, back, "no round trip to NATS")

    @contextmanager
    def _expected(self) -> Iterator[tuple[str, asyncio.Future[Message]]]:
        token = f"{next(self._tokens):x}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._awaited[token] = answer
        try:
            yield f"{self._inbox}.{token}", answer
        finally:
            del self._awaited[token]

    async def _send(
        self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None
    ) -> None:
        if not self.alive or not await self.publish(subject, payload, reply, headers):
            raise Unavailable(f"not sent to {subject}: no connection to NATS")

    def _on_reply(self, message: Message) -> None:
        answer = self._awaited.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        if self._client.is_connected and isinstance(error, _ENDS_LINK):
            self.lost.set()

    async def _on_closed(self) -> None:
        self.lost.set()

    async def close(self) -> None:
        """Ends the link and everything that waits on it."""
        self.lost.set()
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(Unavailable("connection to NATS lost"))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._client.close()
        except Exception as error:  # noqa: BLE001 - broken already, or never opened: it is over.
            log.debug("nats.not_closed", reason=str(error) or type(error).__name__)


class Connection:
    """See the module. `start`, then `close`; all else at any time."""

    def __init__(self, url: str, name: str) -> None:
        """`url`: one server or several with commas. `name` is shown in NATS' own monitoring."""
        self.url = url
        self.name = name
        self.generation = 0
        """Counts the links made. A link counts once all subscriptions stand on it."""
        self.on_change: list[Callable[[bool], None]] = []
        """Called with True when a link stands, with False when it is lost."""
        self._link: _Link | None = None
        self._up = asyncio.Event()
        self._subscriptions: dict[Subscription, None] = {}
        self._keeper: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether a link stands, as far as is known."""
        return self._up.is_set()

    @property
    def cluster(self) -> str:
        """Name of the cluster that the server belongs to. Empty: it stands alone, or no link does."""
        return "" if self._link is None else self._link.cluster

    async def start(self) -> None:
        """Returns at once; the link comes when it comes."""
        # Owned here: `close` ends it and raises what it raised.
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        self._keeper.add_done_callback(self._kept)

    async def close(self) -> None:
        """Ends the link for good."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            while not keeper.done():  # nats-py swallows a cancellation that meets its own close.
                keeper.cancel()
                await asyncio.wait([keeper], timeout=PROBE_SECONDS / 10)
            if not keeper.cancelled():
                keeper.result()

    async def wait_connected(self) -> None:
        """Returns once a link stands."""
        await self._up.wait()

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        """Core NATS. False: there is no link, and nothing was or will be sent."""
        link = self._link
        return link is not None and await link.publish(subject, payload, reply, headers)

    async def request(
        self,
        subject: str,
        payload: bytes,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One answer, or Unavailable. Also an error is an answer."""
        link = self._link
        if link is None:
            raise Unavailable(f"not sent to {subject}: no connection to NATS")
        answer = await link.request(subject, payload, timeout_seconds, headers)
        if status(answer) == NO_RESPONDERS:
            raise Unavailable(f"nobody answers on {subject}")
        return answer

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Messages go to `handler` in order, on this link and all later ones."""
        made = Subscription(self, subject, handler)
        self._subscriptions[made] = None
        if self._link is not None:
            with suppress(*_UNSENT):  # The next link takes it.
                await made.attach(self._link)
        return made

    def forget(self, subscription: Subscription) -> None:
        """No link shall carry it any more."""
        self._subscriptions.pop(subscription, None)

    async def barrier(self, timeout_seconds: float = PROBE_SECONDS) -> None:
        """Once this returns, the server has taken all that was published and subscribed before.

        nats-py's flush is none: it lets its PING overtake what waits to be sent.
        """
        link = self._link
        if link is None:
            raise Unavailable("no connection to NATS")
        await link.round_trip(timeout_seconds)

    async def _keep(self) -> None:
        retry = FIRST_RETRY_SECONDS
        reported = ""
        while True:
            link = _Link(self._mistake)
            try:
                await link.open(self.url, self.name)
                self._link = link
                await self._settle(link)
                log.info("nats.connected", url=self.url, generation=self.generation)
                retry, reported = FIRST_RETRY_SECONDS, ""
                await _watch(link)
                log.warning("nats.lost", url=self.url)
            except Exception as error:  # noqa: BLE001 - nats-py raises what it likes: no link, then.
                if reported != str(error):
                    reported = str(error)
                    log.warning("nats.away", url=self.url, reason=reported)
            finally:
                self._link = None
                self._set_up(False)  # First: it must be true whatever comes of the rest.
                await link.close()
            await asyncio.sleep(retry * random.uniform(0.5, 1.0))  # noqa: S311
            retry = min(2 * retry, LAST_RETRY_SECONDS)

    async def _settle(self, link: _Link) -> None:
        for subscription in list(self._subscriptions):
            await subscription.attach(link)
        await link.round_trip(PROBE_SECONDS)
        self.generation += 1
        self._set_up(True)

    def _set_up(self, up: bool) -> None:
        if up == self._up.is_set():
            return
        if up:
            self._up.set()
        else:
            self._up.clear()
        for callback in list(self.on_change):
            try:
                callback(up)
            except Exception as error:  # noqa: BLE001 - others must be told all the same.
                self._mistake(error)

    def _mistake(self, error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a callback of connection {self.name} raised", "exception": error}
        )

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """It never returns: whatever ended it but `close` must not go unseen."""
        error = None if keeper.cancelled() else keeper.exception()
        if error is not None:
            keeper.get_loop().call_exception_handler(
                {"message": f"connection {self.name} is kept no longer", "exception": error}
            )


async def _within(seconds: float, answer: Awaitable[Message], otherwise: str) -> Message:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise Unavailable(f"{otherwise} in {seconds:g} s") from None


async def _watch(link: _Link) -> None:
    """Returns when the link is lost: told so, or two round trips in a row did not come back."""
    lost_in_a_row = 0
    while link.alive:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await link.lost.wait()
        except TimeoutError:
            pass
        if not link.alive:
            return
        try:
            await link.round_trip(PROBE_SECONDS)
            lost_in_a_row = 0
        except Unavailable:
            lost_in_a_row += 1  # One may be a long turn of our own event loop.
            if lost_in_a_row == 2:
                return
