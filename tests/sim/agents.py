"""A machine with its engines, and the agent on it, as its shell uses its pure parts."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.documents import (
    Assignment,
    Card,
    Document,
    EngineOnNode,
    Gone,
    LastError,
    NodeInfo,
    Session,
    ShardStatus,
)
from schemas.events import Event, log_prefix
from schemas.ids import EngineName, EventId, GpuUuid, NodeId, ReplicaId
from services.agent import shard
from services.agent.shard import Life, Moment, Rules
from services.agent.slots import Slots
from services.fleet.reading import Read, read
from services.log.append import Sealed
from tests.builders import LOG_ID
from tests.sim.engines import DEADLY, NEVER, Engine, identity
from tests.sim.program import Lost, Program

if TYPE_CHECKING:
    from tests.sim.kernel import Steps
    from tests.sim.log import Message
    from tests.sim.world import World

START_SECONDS = 0.1
LOAD_SECONDS = (2.0, 40.0)
LOOK_SECONDS = 1.0
RETRY_SECONDS = 0.5
STOP_SECONDS = (0.2, 6.0)
GIB = 1 << 30


class Machine:
    """What outlives an agent: the disk and, until the power goes, the engines."""

    def __init__(self, world: World, name: str, cards: int, gpu_class: str, fabric: str) -> None:
        self.world = world
        self.node = NodeId(name)
        self.cards = tuple(
            Card(uuid=GpuUuid(f"{name}-gpu-{n}"), gpu_class=gpu_class, memory_bytes=80 * GIB)
            for n in range(cards)
        )
        self.fabric = fabric
        self.boot = 1
        self.on = True
        self.lives: dict[ReplicaId, Life] = {}
        """State files."""
        self.obeyed = 0
        self.engines: list[Engine] = []
        self.agent: Agent | None = None
        self.excused = False
        """A fault of its own has hit it: streams there may have been cut."""
        self.fell_at = 0.0
        """When it was last cut off, or its agent or power went."""
        self._pids = count(100, 2)
        self._starts = count(1)
        world.machines[name] = self

    def fall(self) -> None:
        """A fault of its own hits it now."""
        self.excused, self.fell_at = True, self.world.now

    def start_agent(self) -> None:
        if self.on and self.agent is None:
            self.agent = Agent(self, next(self._starts))

    def kill_agent(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent = None

    def power_off(self) -> None:
        """Everything on it ends at once."""
        self.on = False
        self.kill_agent()
        for engine in self.engines:
            engine.alive = False
            engine.ended(engine)
        self.engines.clear()

    def power_on(self) -> None:
        self.on = True
        self.boot += 1
        self.start_agent()

    def engine_of(self, life: Life) -> Engine | None:
        """Of this very run."""
        for engine in self.engines:
            if engine.alive and engine.process == life.process:
                return engine
        return None

    def launch(self, life: Life) -> Engine:
        world, order = self.world, life.order
        cards = set(order.launch.gpus)
        for other in self.engines:
            shared = cards & set(other.order.launch.gpus)
            world.check(
                not (other.alive and shared),
                f"{order.replica} starts on {shared} of {self.node}, which {other.replica} uses",
            )
        never = NEVER in order.launch.source
        load = 1e9 if never else world.random.uniform(*LOAD_SECONDS)
        process = identity(f"{self.node}-boot-{self.boot}", next(self._pids))
        engine = Engine(order, life.run, process, world.now + START_SECONDS + load, self._ended)
        self.engines.append(engine)
        if never:
            world.kernel.after(START_SECONDS + 3.0, lambda: self.crash(engine))
        return engine

    def crash(self, engine: Engine) -> None:
        """It ends by itself."""
        if engine.alive:
            engine.alive = False
            self._ended(engine)

    def _ended(self, engine: Engine) -> None:
        if engine in self.engines and self.on:
            self.engines.remove(engine)
        if self.agent is not None:
            self.agent.wake()


class Agent(Program):
    """One start of a node's agent."""

    def __init__(self, machine: Machine, start: int) -> None:
        super().__init__(machine.world, machine.node)
        self.machine = machine
        self.incarnation = f"agent-{start}"
        self.registered = False
        self._slots = Slots()
        self._wanted: set[ReplicaId] | None = None
        self._orders: Assignment | None = None
        self._told: dict[ReplicaId, ShardStatus] = {}
        self._waiting: dict[str, tuple[str, Document, EventId | None]] = {}
        self._events = count(1)
        self._answered: set[tuple[str, int]] = set()
        self._due: dict[ReplicaId, float] = {}
        self._launching: dict[ReplicaId, float] = {}
        self.start(self._run())

    @property
    def lives(self) -> dict[ReplicaId, Life]:
        return self.machine.lives

    def told(self, messages: list[Message]) -> None:
        """Of all subjects its own assignment alone."""
        subject = subjects.assignment(self.machine.node)
        for message in messages:
            if message.subject == subject and message.sequence > self.machine.obeyed:
                match read(subject, message.payload, Assignment):
                    case Read(document=assignment):
                        self.machine.obeyed = message.sequence
                        self._orders = assignment
                        self.wake()
                    case _:
                        pass

    def _moment(self) -> Moment:
        return Moment(self.world.wall, self.world.now)

    def _rules(self) -> Rules:
        return Rules(
            now=self._moment(),
            source=self.world.random,
            kill_while_loading=False,
            stop_grace_seconds=10.0,
        )

    def _run(self) -> Steps:
        self._adopt()
        yield from self._register()
        while True:
            self._obey()
            self._watch()
            self._report()
            yield from self._write()
            yield self._rest()

    def _adopt(self) -> None:
        boot = f"{self.machine.node}-boot-{self.machine.boot}"
        for replica, life in list(self.lives.items()):
            self._slots.keep(replica, life.slot)
            engine = self.machine.engine_of(life)
            if engine is not None and life.process is not None:
                self._save(shard.adopted(life, life.process, life.engine_version, self._moment()))
            elif life.process is not None and life.process.engine.boot_id != boot:
                self._become(shard.parked(life, self._moment()), ())
                if self.lives[replica].phase == "starting":
                    self._launching[replica] = self.world.now
            elif life.process is not None:
                self._step(replica, shard.Exited(DEADLY))
            elif life.phase == "starting":
                self._launching[replica] = self.world.now

    def _register(self) -> Steps:
        """Its own word of itself first, then what stands in the log of its assignment."""
        subject = subjects.node_info(self.machine.node)
        sessions = tuple(
            Session(replica=each.replica, attempt=each.order.attempt, process=each.process.engine)
            for each in self.machine.engines
            if each.alive
        )
        info = NodeInfo(
            node=self.machine.node,
            machine_id=f"machine-{self.machine.node}",
            boot_id=f"boot-{self.machine.boot}",
            incarnation=self.incarnation,
            agent_version="0.1.0",
            address="127.0.0.1",
            fabric_address="127.0.0.1",
            admin_address="127.0.0.1:7402",
            ports=(17000, 17099),
            cards=self.machine.cards,
            fabric=self.machine.fabric,
            cores=64.0,
            memory_bytes=512 * GIB,
            engines=(
                EngineOnNode(name=EngineName("vllm"), kind="vllm", version="0.32"),
                EngineOnNode(name=EngineName("llamacpp"), kind="llamacpp", version="b11549"),
            ),
            sessions=sessions,
        )
        self._waiting[subject] = ("node.described", info, None)
        while self._waiting:
            yield from self._write()
            if self._waiting:
                yield RETRY_SECONDS
        self.registered = True
        self.position = 0
        self.pump()

    def _rest(self) -> float:
        now = self.world.now
        waits = [30.0, *(at - now for at in self._launching.values())]
        for replica, life in self.lives.items():
            due = shard.due_in(life, self._moment())
            waits += [] if due is None else [due]
            engine = self.machine.engine_of(life)
            if life.phase in ("starting", "loading") and engine is not None:
                waits.append(engine.ready_at - now)
            if life.phase == "ready" and life.order.goal == "drain":
                waits.append(LOOK_SECONDS)
            if replica in self._due:
                waits.append(self._due[replica] - now)
        if self._waiting:
            waits.append(RETRY_SECONDS)
        return max(min(waits), 0.01)

    # What is told

    def _obey(self) -> None:
        if self._orders is None:
            return
        orders, self._orders = self._orders, None
        self._wanted = {order.replica for order in orders.shards}
        for order in orders.shards:
            if order.replica in self.lives:
                self._step(order.replica, shard.Ordered(order))
            else:
                life, actions = shard.begin(order, self._slots.take(order.replica), self._moment())
                self._become(life, actions)
        for replica in [name for name in self.lives if name not in self._wanted]:
            self._step(replica, shard.Dropped())

    def _step(self, replica: ReplicaId, event: shard.Event) -> None:
        self._become(*shard.step(self.lives[replica], event, self._rules()))

    def _save(self, life: Life) -> None:
        self.lives[life.replica] = life

    def _become(self, life: Life, actions: tuple[shard.Action, ...]) -> None:
        self._save(life)
        for action in actions:
            match action:
                case "start":
                    self._launching[life.replica] = self.world.now + START_SECONDS
                case "terminate":
                    self._terminate(life, self.world.random.uniform(*STOP_SECONDS))
                case "kill":
                    self._terminate(life, 0.05)

    def _terminate(self, life: Life, seconds: float) -> None:
        engine = self.machine.engine_of(life)
        if engine is None:
            return
        self._check_ended_well(life, engine)
        engine.terminated = True
        self.world.kernel.after(seconds, lambda: self.machine.crash(engine))

    def _check_ended_well(self, life: Life, engine: Engine) -> None:
        """Requests are cut only when their time is up, or by a fault."""
        over = life.drain_since is not None and shard.due_in(
            replace(life, phase="ready"), self._moment()
        )
        graceful = life.order.goal == "drain" and isinstance(over, float) and over <= 0
        cut = engine.streams and life.condemned is None and not graceful
        self.world.check(
            not cut or self.machine.excused,
            f"{life.replica} is stopped under {engine.streams} streams",
        )

    # What is seen

    def _watch(self) -> None:
        now = self.world.now
        for replica, at in list(self._launching.items()):
            if at <= now:
                self._launch(replica)
        for replica, life in list(self.lives.items()):
            engine = self.machine.engine_of(life)
            nothing = life.process is not None or life.phase == "stopping"
            if engine is None and nothing:
                self._step(replica, shard.Exited(LastError(failure="crash", message="it ended")))
            elif engine is not None and life.phase in ("starting", "loading"):
                if now >= engine.ready_at:
                    engine.readied = True
                    self._step(replica, shard.Answered())
            elif engine is not None and life.phase == "ready":
                self._look(life, engine)
            due = shard.due_in(self.lives[replica], self._moment())
            if due is not None and due <= 0:
                self._step(replica, shard.Ticked())

    def _look(self, life: Life, engine: Engine) -> None:
        due = self._due.get(life.replica, 0.0)
        if life.order.goal == "drain" and self.world.now >= due:
            self._due[life.replica] = self.world.now + LOOK_SECONDS
            self._step(life.replica, shard.Looked(busy=engine.streams > 0))

    def _launch(self, replica: ReplicaId) -> None:
        life = self.lives.get(replica)
        if life is None or life.phase != "starting" or life.process is not None:
            self._launching.pop(replica, None)
            return
        if shard.holder(life, self.lives.values()) is not None:
            self._launching[replica] = self.world.now + RETRY_SECONDS
            self.world.seen["a start waited for another engine's end"] += 1
            return
        del self._launching[replica]
        engine = self.machine.launch(life)
        self._step(replica, shard.Started(engine.process, "0.32", 0))

    # What is said

    def _report(self) -> None:
        for replica, life in list(self.lives.items()):
            document = shard.report(life, self.machine.node, self.incarnation)
            if self._told.get(replica) != document and self._slots.holds(replica, life.slot):
                self._told[replica] = document
                subject = subjects.node_shard(self.machine.node, life.slot)
                self._waiting[subject] = (f"shard.{life.phase}", document, life.order.cause)

    def _write(self) -> Steps:
        """One document after the other; what is put meanwhile waits for the next round."""
        for subject in list(self._waiting):
            yield from self._put(subject, *self._waiting.pop(subject))
        self._retire()

    def _put(self, subject: str, kind: str, document: Document, cause: EventId | None) -> Steps:
        event = Event(
            id=EventId(f"{self.name}-{self.incarnation}-{next(self._events)}"),
            log=log_prefix(LOG_ID),
            type=kind,
            at=codec.rfc3339(self.world.wall),
            src=f"agent/{self.machine.node}",
            cause=cause,
            data=codec.raw(document),
        )
        sealed = Sealed(subject, event.id, codec.encode(event))
        expected = 0

        def write() -> int | None:
            return self.world.log.write(sealed, expected, self.world.now)

        while True:
            standing = yield from self.ask(lambda: self.world.log.last(subject))
            if not isinstance(standing, Lost):
                expected = 0 if standing is None else standing.sequence
                if isinstance((yield from self.ask(write)), int):
                    return
            yield RETRY_SECONDS

    def _retire(self) -> None:
        for replica, life in list(self.lives.items()):
            wanted = self._wanted is None or replica in self._wanted
            if life.phase != "stopped" or life.wanted or wanted or self._waiting:
                continue
            subject = subjects.node_shard(self.machine.node, life.slot)
            del self.lives[replica]
            self._told.pop(replica, None)
            self._slots.free(replica)
            self._waiting[subject] = ("shard.gone", Gone(id=replica), life.order.cause)
