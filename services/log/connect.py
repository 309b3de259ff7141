"""One connection to NATS that never gives up.

Each physical link (`services.log.link`) is a fresh nats-py client without its own reconnecting; this
class makes the next one, subscribes again and only then counts up `generation`. So nothing of a lost
link survives it: no buffered writes, no half-dead read loop, no client closed for good by an error of
the server.

How it fails, and what callers see:
- NATS away, also from the start, or its door is shut to us: it keeps trying, with jittered back-off up
  to 2 s. `publish` returns False and sends nothing; `request` and `barrier` raise Unavailable, those
  in flight at once. `trouble` says why, in words.
- A link that is open but dead (frozen server, dead read loop, silent network): a round trip every
  2 s; two lost in a row end the link.
- Messages of subscriptions that come while the link is down are lost. Who must not lose any compares
  `generation` or uses `on_change`, and reads again (Tail, Follower).
- NATS denies a subject: a request there raises Denied at once. A subscription that is denied stays
  silent: whoever must know calls its `check` after a barrier; it is tried again every 2 s. Either is
  logged once a link, counted in `denials`, and stands in `trouble`.
- A handler or `on_change` callback that raises is a mistake of ours: it goes to the event loop's
  exception handler; the connection lives on. So does a mistake that ends the connection's own task.
"""

import asyncio
import random  # noqa: TID251 - jitter of reconnects, repeated by nobody.
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from services.log.door import Door
from services.log.link import UNSENT, Handler, Link, NoLink, unsubscribe
from services.log.message import NO_RESPONDERS, Denied, Message, Reply, Unavailable, status

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription as NatsSubscription

__all__ = ["Connection", "Denied", "Handler", "Message", "Reply", "Subscription", "Unavailable"]

log = structlog.get_logger()

PROBE_SECONDS = 2.0
"""Between two round trips, and how long each may take."""
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0
TROUBLE_SECONDS = 10.0
"""A publish that was denied is told about for so long: what matters is published again and again."""
NO_CONNECTION = "no connection to NATS"


class Subscription:
    """Interest in a subject that survives reconnects."""

    def __init__(self, connection: "Connection", subject: str, handler: Handler) -> None:
        self.subject = subject
        self.denied: Denied | None = None
        """NATS carries none of it over the link that stands."""
        self._connection = connection
        self._handler = handler
        self._link: Link | None = None
        self._inner: NatsSubscription | None = None

    async def attach(self, link: Link) -> None:
        """Subscribe on a new link; nothing to do if it is already, and was not denied."""
        if self._link is not link or self.denied is not None:
            self._link, self.denied = link, None
            self._inner = await link.subscribe(self.subject, self._handler)

    def check(self) -> None:
        """Raises Denied. Call it after a barrier, or an answer, over the link it stands on."""
        if self.denied is not None:
            raise self.denied

    async def close(self) -> None:
        """No message is handed over after this."""
        self._connection.forget(self)
        inner, self._inner = self._inner, None
        if inner is not None:
            await unsubscribe(inner)


def pauses(uniform: Callable[[float, float], float]) -> Iterator[float]:
    """Seconds between tries to connect, for ever: longer each time, and no two clients' the same.

    So a server that comes back is not met by all of a fleet at one moment.
    """
    retry = FIRST_RETRY_SECONDS
    while True:
        yield retry * uniform(0.5, 1.0)
        retry = min(2 * retry, LAST_RETRY_SECONDS)


class Connection:
    """See the module. `start`, then `close`; all else at any time."""

    def __init__(self, door: Door | str, name: str) -> None:
        """`door`: a url alone is that of a NATS that asks for no user. `name` is shown in NATS' own
        monitoring."""
        self.door = Door(url=door) if isinstance(door, str) else door
        self.name = name
        self.generation = 0
        """Counts the links made. A link counts once all subscriptions stand on it."""
        self.denials = 0
        """Times that NATS denied something."""
        self.on_change: list[Callable[[bool], None]] = []
        """Called with True when a link stands, with False when it is lost."""
        self._link: Link | None = None
        self._up = asyncio.Event()
        self._subscriptions: dict[Subscription, None] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._away = ""
        self._denied: tuple[Denied, float] | None = None
        self._told: set[tuple[str, str]] = set()
        """What was denied over this link, and logged."""

    @property
    def url(self) -> str:
        """Of the door."""
        return self.door.url

    @property
    def inbox(self) -> str:
        """Subjects under it are this user's own, to have answers come there."""
        return self.door.inbox

    @property
    def connected(self) -> bool:
        """Whether a link stands, as far as is known."""
        return self._up.is_set()

    @property
    def cluster(self) -> str:
        """Name of the cluster that the server belongs to. Empty: it stands alone, or no link does."""
        return "" if self._link is None else self._link.cluster

    @property
    def trouble(self) -> str:
        """For people: why NATS is not of full use at this moment. Empty: it is."""
        if not self.connected:
            return f"{NO_CONNECTION}: {self._away}" if self._away else NO_CONNECTION
        for subscription in self._subscriptions:
            if subscription.denied is not None:
                return str(subscription.denied)
        if self._denied is not None and _now() - self._denied[1] < TROUBLE_SECONDS:
            return str(self._denied[0])
        return ""

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
            raise Unavailable(f"not sent to {subject}: {NO_CONNECTION}")
        answer = await link.request(subject, payload, timeout_seconds, headers)
        if status(answer) == NO_RESPONDERS:
            raise Unavailable(f"nobody answers on {subject}")
        return answer

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Messages go to `handler` in order, on this link and all later ones."""
        made = Subscription(self, subject, handler)
        self._subscriptions[made] = None
        if self._link is not None:
            with suppress(*UNSENT):  # The next link takes it.
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
            raise Unavailable(NO_CONNECTION)
        await link.round_trip(timeout_seconds)

    async def _keep(self) -> None:
        waits = pauses(random.uniform)
        while True:
            link = Link(self.door, self._mistake, self._on_denied)
            try:
                await link.open(self.name)
                self._link = link
                await self._settle(link)
                log.info("nats.connected", url=self.url, generation=self.generation)
                waits = pauses(random.uniform)
                await self._watch(link)
                log.warning("nats.lost", url=self.url)
            except (NoLink, Unavailable, *UNSENT) as error:
                self._say_away(str(error) or type(error).__name__)
            finally:
                self._link = None
                self._set_up(False)  # First: it must be true whatever comes of the rest.
                await link.close()
            await asyncio.sleep(next(waits))

    def _say_away(self, reason: str) -> None:
        if reason != self._away:
            self._away = reason
            log.warning("nats.away", url=self.url, user=self.door.user, reason=reason)

    async def _settle(self, link: Link) -> None:
        self._told.clear()
        await self._attach_all(link)
        await link.round_trip(PROBE_SECONDS)
        self.generation += 1
        self._away = ""
        self._set_up(True)

    async def _attach_all(self, link: Link) -> None:
        for subscription in list(self._subscriptions):
            await subscription.attach(link)

    async def _watch(self, link: Link) -> None:
        """Returns when the link is lost: told so, or two round trips in a row did not come back."""
        lost_in_a_row = 0
        while link.alive and lost_in_a_row < 2:
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await link.lost.wait()
            if not link.alive:
                return
            try:
                await self._attach_all(link)  # What was denied may be allowed by now.
                await link.round_trip(PROBE_SECONDS)
                lost_in_a_row = 0
            except Unavailable:
                lost_in_a_row += 1  # One may be a long turn of our own event loop.

    def _on_denied(self, denied: Denied) -> None:
        self.denials += 1
        self._denied = denied, _now()
        for subscription in self._subscriptions:
            if denied.verb == "subscribe" and subscription.subject.lower() == denied.subject:
                subscription.denied = denied
        if (denied.verb, denied.subject) not in self._told:
            self._told.add((denied.verb, denied.subject))
            log.error("nats.denied", verb=denied.verb, subject=denied.subject, user=self.door.user)

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


def _now() -> float:
    return asyncio.get_running_loop().time()
