"""Documents pushed to those who act on them: routers and agents. No consumer on the server for any.

Live copies of the log's subjects come by plain subscriptions; what was written before is got one by
one. Subscribe, ask over the same link where LOG ends, get: whatever is stored later comes live.

How it fails:
- The link is lost, or NATS is away: what was applied stands. Over the next link everything wanted is
  got again before anything that came over it is applied.
- A live copy is lost: the next one of its subject names a predecessor that was never seen, and
  everything wanted is got again. A last copy that is lost stays lost until `resync`: whoever hears
  from others how far the log is calls that.
- In a cluster of servers a replica that lags answers a get with what stood there before: everything is
  got once more a while after a link came to stand. Until then `applied` may claim too much.
- A document is in neither LOG nor STATE: `apply` is not called for it.
- A get is not answered, or NATS denies a pattern or a get: tried again; `synced` stays False.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import structlog
from msgspec import Struct

from schemas import codec, subjects
from services.log import streams
from services.log.connect import Connection, Subscription
from services.log.message import Denied, Message, Unavailable
from services.log.snapshot import get
from services.log.stored import Stored

log = structlog.get_logger()

GETS_AT_ONCE = 32
RETRY_SECONDS = 0.2
LAG_SECONDS = 5.0
"""A replica that answers gets is far less behind than that, unless its server is in trouble."""
DENIED_SECONDS = 2.0


class _Live(Struct, frozen=True, gc=False):
    """A live copy, and the message of its subject before it, 0 for none."""

    stored: Stored
    previous: int


class Follower:
    """`run` in a task of its own; all calls of `apply` and `wanted` come from there."""

    def __init__(
        self,
        connection: Connection,
        patterns: Sequence[str],
        wanted: Callable[[], Iterable[str]],
        apply: Callable[[Stored], None],
    ) -> None:
        """Log subjects. No two `patterns` may match one subject; `wanted` names some that they match.

        `wanted` is asked again after each change, so that one document can name others. `apply` gets
        a subject's documents with rising sequences.
        """
        self.applied = 0
        """Every document of the patterns up to this LOG sequence is applied."""
        self.synced = False
        """All that is wanted was read over the link that stands."""
        self.resyncs = 0
        """How often everything was read, the first time included."""
        self._connection = connection
        self._patterns = patterns
        self._wanted = wanted
        self._apply = apply
        self._held: dict[str, int] = {}
        """Sequence applied, by subject."""
        self._known: set[str] = set()
        """Subjects whose last document is held, or looked for in vain, since all was last read."""
        self._base = 0
        """Where LOG ended when all was last read: what is stored later comes live."""
        self._arrived: deque[_Live] = deque()
        self._wake = asyncio.Event()
        self._due = True
        self._repeated = 0
        """The link over which all was, or will be, read a second time."""
        self._subscriptions: list[Subscription] = []

    def resync(self) -> None:
        """Read everything wanted again."""
        self._due = True
        self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        self._connection.on_change.append(self._on_change)
        try:
            for pattern in self._patterns:
                live = subjects.live(pattern)
                self._subscriptions.append(await self._connection.subscribe(live, self._on_live))
            while True:
                await self._turn()
        finally:
            self._connection.on_change.remove(self._on_change)
            for subscription in self._subscriptions:
                await subscription.close()

    async def _turn(self) -> None:
        try:
            if self._due:
                await self._read_all()
            await self._advance(self._take())
        except (Unavailable, streams.LogMissing) as error:
            log.info("log.follower.waits", reason=str(error))
            self.resync()
            await asyncio.sleep(DENIED_SECONDS if isinstance(error, Denied) else RETRY_SECONDS)
            await self._connection.wait_connected()
        if not self._due and not self._arrived:
            await self._wake.wait()
        self._wake.clear()

    async def _read_all(self) -> None:
        """What arrives meanwhile waits in the queue."""
        self._due = False
        # Asked over the same link after subscribing: what LOG stores beyond this comes live.
        base = await streams.head(self._connection)
        for subscription in self._subscriptions:
            subscription.check()  # The answer came behind whatever the server said to them.
        self._base = base
        self._known.clear()
        await self._get_unknown()
        self.applied = max(self.applied, base)
        self.resyncs += 1
        self._repeat_later()
        self.synced = not self._due

    def _repeat_later(self) -> None:
        link = self._connection.generation
        if self._connection.cluster and link != self._repeated:
            self._repeated = link
            asyncio.get_running_loop().call_later(LAG_SECONDS, self.resync)

    def _take(self) -> int:
        """Apply what has come, and return how far that is.

        Several subscriptions feed the queue, each in the log's order. All that came in before its
        newest message is in it by now, since their tasks woke up before this one.
        """
        newest = self.applied
        while self._arrived and not self._due:
            live = self._arrived.popleft()
            subject, sequence = live.stored.subject, live.stored.sequence
            before = self._held.get(subject, 0) if subject in self._known else self._base
            if live.previous > before:
                log.warning("log.follower.gap", subject=subject, lost=live.previous)
                self.resync()
            self._put(live.stored)
            newest = max(newest, sequence)
        return newest

    async def _advance(self, newest: int) -> None:
        """Get what the applied documents have made wanted; only then have we come so far."""
        await self._get_unknown()
        if not self._due:
            self.applied = newest

    async def _get_unknown(self) -> None:
        while new := [subject for subject in self._wanted() if subject not in self._known]:
            part = new[:GETS_AT_ONCE]
            for stored in await asyncio.gather(*(get(self._connection, each) for each in part)):
                if stored is not None:
                    self._put(stored)
            self._known.update(part)

    def _put(self, stored: Stored) -> None:
        self._known.add(stored.subject)
        if stored.sequence > self._held.get(stored.subject, 0):
            self._held[stored.subject] = stored.sequence
            self._apply(stored)

    def _on_live(self, message: Message) -> None:
        headers = message.headers
        stored = Stored(
            int(headers["Nats-Sequence"]),
            subjects.logged(message.subject),
            message.payload,
            codec.seconds(headers["Nats-Time-Stamp"]),
        )
        self._arrived.append(_Live(stored, int(headers["Nats-Last-Sequence"])))
        self._wake.set()

    def _on_change(self, _: bool) -> None:
        self.synced = False
        self.resync()
