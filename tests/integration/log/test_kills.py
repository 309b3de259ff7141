"""One server killed under load, with entities that come, go, and leave their slots to others."""

import asyncio
import random
from contextlib import suppress

from msgspec.structs import replace

from schemas import subjects
from schemas.documents import Document, Gone, ReplicaDocument
from schemas.ids import EventId, ModelName, ReplicaId
from services.fleet.state import FleetState
from services.log import streams
from services.log.append import Appended, Sealed, append
from services.log.connect import Connection
from services.log.documents import read_documents
from services.log.message import Unavailable
from services.log.stored import Stored
from services.log.tail import Tail
from tests.builders import a_genesis, a_replica, an_event
from tests.support.events import lead
from tests.support.examples import rounds
from tests.support.nats_server import NatsServer

ROUNDS = rounds("NATS_KILLS", 4)
SLOTS = 12
MODEL = ModelName("tiny")
PAD_BYTES = 4000
"""So that the server fills files, closes and compresses them, and not only appends to its first one."""


class Fleet:
    """Replicas that come, change and go, as the writer knows that the log has taken them."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.alive: dict[int, ReplicaDocument] = {}
        self.ended: set[ReplicaId] = set()
        """Gone for good: no id is ever used again."""
        self._generation = 0
        self._events = 0

    def draft(self) -> tuple[dict[int, ReplicaDocument | None], list[Sealed]]:
        """What becomes of some slots, and the batch that says so."""
        chosen = self.source.sample(range(SLOTS), self.source.randrange(1, SLOTS))
        becomes = {slot: self._next(slot) for slot in chosen}
        return becomes, [self._seal(slot, becomes[slot]) for slot in chosen]

    def take(self, becomes: dict[int, ReplicaDocument | None]) -> None:
        """It was acknowledged."""
        for slot, document in becomes.items():
            if (before := self.alive.pop(slot, None)) and (
                not document or document.id != before.id
            ):
                self.ended.add(before.id)
            if document is not None:
                self.alive[slot] = document

    def _next(self, slot: int) -> ReplicaDocument | None:
        now = self.alive.get(slot)
        if now is None:
            self._generation += 1
            fresh = a_replica(MODEL, slot, generation=self._generation)
            return replace(fresh, reason=self.source.randbytes(PAD_BYTES).hex())
        return None if self.source.random() < 0.5 else replace(now, attempt=now.attempt + 1)

    def _seal(self, slot: int, document: ReplicaDocument | None) -> Sealed:
        self._events += 1
        before = self.alive.get(slot)
        held: Document = document or Gone(id=before.id if before else "")
        id_ = EventId(f"change-{self._events}")
        return Sealed(subjects.replica(MODEL, slot), id_, an_event(held, id_=id_))


async def write(log: Connection, fence: int, fleet: Fleet, stop: asyncio.Event) -> None:
    while not stop.is_set():
        becomes, events = fleet.draft()
        outcome = await append(log, events, fence)
        assert isinstance(outcome, Appended), outcome
        fleet.take(becomes)


async def whole_log(log: Connection, after: int, head: int) -> list[Stored]:
    found: list[Stored] = []
    if after < head:
        async for batch in Tail(log, after).batches():
            found += batch
            if batch[-1].sequence >= head:
                break
    return found


async def restarted(log: Connection) -> FleetState:
    """As a control that starts now would know it: STATE, and LOG's tail."""
    while True:
        with suppress(Unavailable, streams.LogMissing):
            head = await streams.head(log)
            _, state = await read_documents(log)
            for stored in await whole_log(log, state.sequence, head):
                state.apply(stored.sequence, stored.subject, stored.payload)
            return state
        await asyncio.sleep(0.05)


# spec: L2 L4 L6
async def test_after_a_kill_nothing_is_lost_wrong_or_back_from_the_dead(
    nats: NatsServer, log: Connection
) -> None:
    source = random.Random(5)
    genesis = an_event(a_genesis(), id_="genesis")
    await log.request(subjects.GENESIS, genesis, 5.0)
    fence, fleet = await lead(log), Fleet(source)
    for number in range(ROUNDS):
        stop = asyncio.Event()
        writing = asyncio.ensure_future(write(log, fence, fleet, stop))
        await asyncio.sleep(source.uniform(0.05, 0.4))
        nats.kill()
        nats.start()
        await log.wait_connected()
        if number % 2:  # Every other time also while the writer is at it again.
            await asyncio.sleep(source.uniform(0.0, 0.2))
        stop.set()
        await writing
        state = await restarted(log)
        lived = FleetState()
        for stored in await whole_log(log, 0, await streams.head(log)):
            lived.apply(stored.sequence, stored.subject, stored.payload)
        assert state.dump() == lived.dump()
        held = {replica.document.id: replica.document for replica in state.replicas.values()}
        assert held == {document.id: document for document in fleet.alive.values()}
        assert not fleet.ended & set(held)
    assert fleet.ended
    print(f"{ROUNDS} kills, {await streams.head(log)} events")  # noqa: T201
