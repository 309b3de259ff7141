"""Routers as far as control depends on them: a table that follows the log, streams, and beats."""

from collections.abc import Callable

from schemas.documents import Endpoint, EndpointShard
from schemas.ids import RouterId
from services.control.beating import is_routing
from services.fleet.reading import Read, read
from tests.sim.engines import Engine
from tests.sim.kernel import Steps
from tests.sim.log import Message
from tests.sim.program import Program
from tests.sim.world import World

STREAM_SECONDS = (0.2, 25.0)
BETWEEN_SECONDS = 4.0


class Router(Program):
    """One start of a router, with its clients."""

    def __init__(
        self, world: World, name: str, start: int, find: Callable[[Endpoint], Engine | None]
    ) -> None:
        super().__init__(world, name)
        self.id = RouterId(name)
        self.incarnation = f"{name}-{start}"
        self.applied = 0
        self.table: dict[str, tuple[int, tuple[Endpoint, ...]]] = {}
        self._applied: list[tuple[float, int]] = [(world.now, 0)]
        self._find = find
        self.excused = False
        """It was cut off, and may know of things that are over."""
        self.start(self._run())
        self.pump()

    def applied_at(self, at: float) -> int:
        """What its beat said then."""
        for since, applied in reversed(self._applied):
            if since <= at:
                return applied
        return 0

    def told(self, messages: list[Message]) -> None:
        for message in messages:
            if message.subject.startswith("flotilla.log.s.endpoints."):
                self._apply(message)
            if is_routing(message.subject):
                self.applied = message.sequence
        self._applied = [*self._applied[-20:], (self.world.now, self.applied)]

    def _apply(self, message: Message) -> None:
        before = self.table.get(message.subject, (0, ()))[0]
        self.world.check(message.sequence > before, f"{self.name}'s table goes back")
        match read(message.subject, message.payload, EndpointShard):
            case Read(document=found):
                self.table[message.subject] = (message.sequence, found.endpoints)
            case _:
                self.table[message.subject] = (message.sequence, ())

    def _run(self) -> Steps:
        """Its clients: one request after the other."""
        while True:
            self._request()
            yield self.world.random.expovariate(1 / BETWEEN_SECONDS)

    def _request(self) -> None:
        endpoints = [
            each
            for _, (_, found) in sorted(self.table.items())
            for each in found
            if not each.unrouted
        ]
        if not endpoints:
            return
        endpoint = self.world.random.choice(endpoints)
        engine = self._find(endpoint)
        if engine is None:
            self.world.seen["a request met no engine"] += 1
            return
        self.world.check(
            not engine.terminated or self.excused or self.world.machines[endpoint.node].excused,
            f"{engine.replica} is sent a request while it ends",
        )
        engine.streams += 1
        self.world.seen["a stream was begun"] += 1
        self.world.kernel.after(
            self.world.random.uniform(*STREAM_SECONDS), lambda: self._end(engine)
        )

    def _end(self, engine: Engine) -> None:
        engine.streams -= 1
