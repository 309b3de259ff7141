"""What must hold after each message of the log, whatever happens. A reference that is naive on purpose."""

from collections import Counter

from schemas import codec, subjects
from schemas.catalog import Model
from schemas.documents import (
    Assignment,
    ControlEpoch,
    EndpointShard,
    NodeVerdict,
    ReplicaDocument,
    ShardStatus,
)
from schemas.ids import ModelName, NodeId, ReplicaId
from services.control.deciding.current import CurrentCatalog
from services.fleet.state import FleetState
from tests.sim.log import Message
from tests.sim.world import World


class Invariants:
    """Folds the log as it is written, with the product's own fold, and looks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = FleetState()
        self.catalog = CurrentCatalog()
        self.ids: set[ReplicaId] = set()
        self.gone: set[ReplicaId] = set()
        self.ready: set[tuple[ReplicaId, str]] = set()
        """Starts of engines of which their agent has ever said that they are ready."""
        self.fence = 0

    def stored(self, message: Message) -> None:
        before = self.state.held(message.subject)
        self.state.apply(message.sequence, message.subject, message.payload)
        check, event = self.world.check, codec.decode_event(message.payload)
        check(not self.state.unreadable, f"unreadable: {self.state.unreadable}")
        self.world.seen[f"event {event.type}"] += 1
        held = self.state.held(message.subject)
        document = None if held is None else held.document
        if event.src.startswith("control/") and message.subject not in _NO_EPOCH:
            check(
                event.epoch == self.fence, f"{event.type} of epoch {event.epoch}, not {self.fence}"
            )
        match document:
            case ControlEpoch():
                self.fence = message.sequence
            case ReplicaDocument():
                check(document.id not in self.gone, f"{document.id} comes back")
                self._room(document)
            case ShardStatus(phase="ready"):
                self.ready.add((document.replica, f"{document.attempt}.{document.run}"))
            case Assignment():
                self._cards(document)
            case EndpointShard():
                self._endpoints(document)
            case NodeVerdict(condition="lost", node=node):
                self._lost(node)
            case _:
                pass
        old = None if before is None else before.document
        if isinstance(old, ReplicaDocument) and getattr(document, "id", "") != old.id:
            self.gone.add(old.id)

    def _cards(self, assignment: Assignment) -> None:
        """No card of a node is in two of its orders, no order out of thin air, gangs whole."""
        used = Counter(gpu for order in assignment.shards for gpu in order.launch.gpus)
        twice = [gpu for gpu, number in used.items() if number > 1]
        self.world.check(not twice, f"{twice} assigned twice on {assignment.node}")
        for order in assignment.shards:
            replica = self.state.replica(order.replica)
            self.world.check(
                replica is not None, f"{order.replica} is ordered, and no such replica is decided"
            )

    def _room(self, replica: ReplicaDocument) -> None:
        """What it is given, no other replica has: a card as little as a port."""
        mine, cards = _given(replica), [(p.node, gpu) for p in replica.shards for gpu in p.gpus]
        for held in self.state.replicas.values():
            if held.document.id != replica.id:
                shared = mine & _given(held.document)
                both = f"{replica.id} and {held.document.id}"
                self.world.check(not shared, f"{both} both have {shared}")
        for node, gpu in cards:
            known = {card.uuid for card in self.world.machines[node].cards}
            self.world.check(gpu in known, f"{replica.id} has {gpu}, which {node} has not")

    def _endpoints(self, document: EndpointShard) -> None:
        """What is routed was ready, by its agent's word, in this very start."""
        for endpoint in document.endpoints:
            start = (endpoint.replica, endpoint.incarnation)
            self.world.check(
                start in self.ready, f"{start} is published, and nobody ever said it was ready"
            )

    def _lost(self, node: NodeId) -> None:
        """Of many that fell silent with it, nobody is believed lost."""
        self.world.seen["a node was lost"] += 1
        machines = self.world.machines.values()
        fell = self.world.machines[node].fell_at
        silent = [m for m in machines if m.agent is None or not m.agent.speaks]
        sudden = [
            m for m in silent if abs(m.fell_at - fell) < 50.0 and m.fell_at < self.world.now - 6
        ]
        many = len(sudden) >= 3 and len(sudden) * 2 > len(machines)
        self.world.check(
            not many, f"{node} is lost, though {len(sudden)} of {len(machines)} fell silent"
        )

    def models(self) -> dict[ModelName, Model]:
        return dict(self.catalog.read(self.state).catalog.models)

    def at_end(self) -> None:
        """The fold of all that was written, and of STATE and its tail at any cut, is what was lived."""
        lived = self.state.dump()
        log = self.world.log.messages
        self.world.check(_folded(log) == lived, "folded from empty, the state is another")
        for _ in range(3):
            cut = self.world.random.randrange(len(log) + 1)
            newest = {m.subject: m for m in log[:cut] if m.subject.startswith(subjects.STATE_ROOT)}
            documents = sorted(newest.values(), key=lambda m: m.sequence)
            again = [self.world.random.choice(log) for _ in range(5)]
            refolded = _folded([*documents, *log[cut:], *again])
            self.world.check(refolded == lived, f"from STATE at {cut} and the tail, it is another")


def _given(replica: ReplicaDocument) -> set[tuple[str, str]]:
    """Cards and ports, each with its node."""
    cards = {(plan.node, gpu) for plan in replica.shards for gpu in plan.gpus}
    return {*cards, *((plan.node, f"port {plan.port}") for plan in replica.shards)}


_NO_EPOCH = {subjects.GENESIS, subjects.CONTROL_EPOCH}


def _folded(messages: list[Message]) -> bytes:
    state = FleetState()
    for message in messages:
        state.apply(message.sequence, message.subject, message.payload)
    return state.dump()
