"""A log with a past: documents that replace one another, happenings between them, as programs write them."""

from schemas import codec, subjects
from schemas.documents import ControlEpoch, Document, Gone
from schemas.events import Event, log_prefix
from schemas.ids import ControlId, EventId, LogId
from services.fleet.state import FleetState
from services.log.api import call
from services.log.connect import Connection
from services.log.history import bounds, read_range
from services.log.restore import restore
from services.log.snapshot import read_state
from services.log.stored import Stored
from services.log.streams import StreamInfo
from tests.builders import a_genesis, a_node, a_pointer, a_verdict, at
from tests.support.waiting import eventually

LOG_ID = LogId("1234567890abcdef1234567890abcdef")
NEXT_ID = LogId("abcdef1234567890abcdef1234567890")


class Past:
    """Messages in the order in which they stand in LOG; `written` puts them there."""

    def __init__(self, first: int = 1) -> None:
        self.messages: list[Stored] = []
        self.log_id = LOG_ID
        self.fence = 0
        self._next = first

    def put(self, subject: str, payload: bytes) -> int:
        """Anything at all."""
        self.messages.append(Stored(self._next, subject, payload))
        self._next += 1
        return self._next - 1

    def say(
        self,
        subject: str,
        document: object,
        src: str = "control/c1",
        *,
        log_id: LogId | None = None,
        epoch: int | None = None,
    ) -> int:
        """An event, as this writer would write it now."""
        fence = self.fence if src.startswith("control/") else 0
        event = Event(
            id=EventId(f"event-{self._next}"),
            log=log_prefix(log_id or self.log_id),
            type="test.happened",
            at=at(self._next),
            src=src,
            epoch=fence if epoch is None else epoch,
            data=codec.raw(document),
        )
        return self.put(subject, codec.encode(event))

    def begin(self, log_id: LogId = LOG_ID, parent: LogId | None = None) -> int:
        self.log_id = log_id
        return self.say(subjects.GENESIS, a_genesis(log_id, parent), epoch=0)

    def claim(self) -> int:
        document = ControlEpoch(holder=ControlId("c1"), incarnation="i1", address="127.0.0.1:1")
        self.fence = self.say(subjects.CONTROL_EPOCH, document)
        return self.fence

    def pass_by(self, events: int, *, broken: bool = False) -> "Past":
        """`broken`: every twentieth document cannot be read."""
        for number in range(events):
            subject, document, src = _happening(number)
            if broken and number % 20 == 19:
                self.put(subject, b'{"id": broken\n')
            else:
                self.say(subject, document, src)
        return self

    def dump(self, sequence: int | None = None) -> bytes:
        """The state at a sequence."""
        return dump(self.messages, sequence)


def _happening(number: int) -> tuple[str, Document | dict[str, str], str]:
    node = a_node(f"node-{number % 7}")
    match number % 5:
        case 0:
            return subjects.command("cordon"), {"node": node.node}, "control/c1"
        case 1:
            return subjects.node_verdict(node.node), a_verdict(node.node), "control/c1"
        case 2 if number % 3 == 0:
            return subjects.node_info(node.node), Gone(id=node.node), "control/c1"
        case 3:
            return subjects.CATALOG, a_pointer(number), "control/c1"
        case _:
            return subjects.node_info(node.node), node, f"agent/{node.node}"


def begun() -> Past:
    """Genesis and claim."""
    past = Past()
    past.begin()
    past.claim()
    return past


def dump(messages: list[Stored], sequence: int | None = None) -> bytes:
    state = FleetState()
    for stored in messages:
        if sequence is None or stored.sequence <= sequence:
            state.apply(stored.sequence, stored.subject, stored.payload)
    return state.dump()


async def written(connection: Connection, past: Past) -> None:
    """What LOG does not hold yet; returns once STATE has followed."""
    head = (await bounds(connection)).last
    left = [stored for stored in past.messages if stored.sequence > head]
    for start in range(0, len(left), 500):
        await restore(connection, left[start : start + 500])
    await followed(connection)


async def followed(connection: Connection) -> None:
    """STATE has all documents of LOG."""
    stored = await lived(connection)
    newest = max(s.sequence for s in stored if s.subject.startswith(subjects.STATE_ROOT))

    async def follows() -> bool:
        return (await read_state(connection))[1] >= newest

    await eventually(follows, "STATE follows LOG")


async def lived(connection: Connection) -> list[Stored]:
    """All that LOG holds."""
    return [stored async for batch in read_range(connection, 1) for stored in batch]


async def age_away(connection: Connection, below: int) -> None:
    """As LOG's age would have it: its first messages are gone, its sequences are not."""
    config = (await call(connection, "STREAM.INFO.FLOTILLA_LOG", None, StreamInfo)).config
    left = (await bounds(connection)).last - below + 1
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", config | {"max_msgs": left}, StreamInfo)
    await call(connection, "STREAM.UPDATE.FLOTILLA_LOG", config, StreamInfo)
