"""Control, as its shell uses its pure parts: hear, claim, carry out commands, decide, write, fold."""

from collections import deque
from collections.abc import Generator, Sequence

from schemas import codec, subjects
from schemas.beats import ControlBeat
from schemas.documents import NodeInfo
from schemas.frames import Frame
from schemas.ids import ControlId, EventId, NodeId
from services.control.clock import Clock
from services.control.commanding.moment import Moment, Plan
from services.control.deciding.current import CurrentCatalog
from services.control.deciding.drafts import Draft, batches
from services.control.deciding.reconcile import decide
from services.control.deciding.silence import Hearing
from services.control.leader import Leadership
from services.control.seal import Envelope
from services.fleet.state import FleetState
from services.log.append import Sealed
from tests.sim.agents import Agent
from tests.sim.kernel import Steps
from tests.sim.log import Message
from tests.sim.program import Lost, Program
from tests.sim.routers import Router
from tests.sim.world import World

AGAIN_SECONDS = 0.5
STANDBY_SECONDS = 0.2
QUIET_SECONDS = 5.0


class Command:
    """One command, given once, and what its answer was."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.given = False
        """A control has it, and has not died over it."""
        self.answer: Frame | None = None


class Control(Program):
    """One start of a control service."""

    def __init__(self, world: World, name: str, start: int) -> None:
        super().__init__(world, name)
        self.leadership = Leadership(ControlId(name), f"{name}-{start}", f"{name}:1")
        self.hearing = Hearing()
        self.commands: deque[Command] = deque()
        self.state = FleetState()
        self._clock = Clock()
        self._catalog = CurrentCatalog()
        self._events = 0
        self._start = start
        self._listened = world.now
        self._heard: dict[str, float] = {}
        self._wake_at: float | None = None
        self.start(self._run())

    @property
    def leading(self) -> bool:
        return self.leadership.leads(self.state)

    def fleet_now(self) -> float:
        newest = self.state.newest_control_at
        return self._clock.read(codec.seconds(newest) if newest else 0.0, self.world.now)

    def beat(self) -> ControlBeat:
        log_id = self.state.log_id
        assert log_id is not None
        return ControlBeat(
            control=self.leadership.control,
            incarnation=self.leadership.incarnation,
            leading=self.leadership.holds(self.state),
            epoch=self.leadership.fence or self.state.fence,
            log=log_id,
            head=self.state.sequence,
            routing=0,
        )

    def before_change(self) -> None:
        if self.runs:
            self._listen()

    def told(self, messages: list[Message]) -> None:
        for message in messages:
            self.state.apply(message.sequence, message.subject, message.payload)
            self._joined(message.subject)
        self._clock.heard(messages[-1].stamp, self.world.now)
        self.wake()

    def _joined(self, subject: str) -> None:
        words = subject.split(".")
        if words[3:4] == ["node"] and words[-1] == "info":
            held = self.state.held(subject)
            document = None if held is None else held.document
            if isinstance(document, NodeInfo):
                self.hearing.joined(document.node, document.incarnation, self.world.now)

    def _open(self) -> Steps:
        """STATE, and LOG's tail from there on."""
        while True:
            found = yield from self.ask(lambda: (self.world.log.state(), self.world.log.head))
            if not isinstance(found, Lost):
                break
        documents, head = found
        if self.world.random.random() < 0.3:  # STATE may be behind LOG.
            behind = self.world.random.randrange(head + 1)
            documents = _state_at(self.world, behind)
        for message in documents:
            self.state.apply(message.sequence, message.subject, message.payload)
        self.position = documents[-1].sequence if documents else 0
        for held in self.state.infos.values():
            self.hearing.joined(held.document.node, held.document.incarnation, self.world.now)
        self.pump()
        while self.state.sequence < head:
            yield AGAIN_SECONDS

    def _run(self) -> Steps:
        yield from self._open()
        self.leadership.begin()
        while True:
            self._listen()
            if self.connected and self._is_due():
                yield from self._claim()
            if self.leading:
                yield from self._lead()
            else:
                self._give_back()
            yield self._rest()

    def _give_back(self) -> None:
        while self.commands:
            self.commands.popleft().given = False

    def _is_due(self) -> bool:
        return self.leadership.should_claim(self.state, self.hearing.since, self.world.now)

    def _rest(self) -> float:
        if self.leading:
            wait = QUIET_SECONDS
            if self._wake_at is not None:
                wait = min(wait, self._wake_at - self.fleet_now())
            return max(wait, 0.01)
        leads = any(isinstance(p, Control) and p.speaks and p.leading for p in self.world.programs)
        return QUIET_SECONDS if leads else STANDBY_SECONDS

    def _lead(self) -> Steps:
        while self.commands and self.leading:
            command = self.commands[0]
            planned = command.plan(Moment(self.state, self._catalog.read(self.state)))
            if not planned.drafts or (yield from self._write(self._envelope(), planned.drafts)):
                command.answer = planned.answer(self.state.sequence)
                self.commands.popleft()
            else:
                break
        if not (self.leading and self.connected) or self.state.halted():
            return
        self._listen()
        current = self._catalog.read(self.state)
        envelope = self._envelope()
        silence = self.hearing.measure(self.world.now)
        models = None if current.refused else current.catalog.models
        decision = decide(self.state, models, silence, envelope.now)
        self.world.passes += 1
        self._wake_at = decision.wake_at
        for batch in batches(decision.drafts):
            if not (yield from self._write(envelope, batch)):
                return

    def _claim(self) -> Steps:
        standing = yield from self.ask(lambda: self.world.log.last(subjects.CONTROL_EPOCH))
        if isinstance(standing, Lost):
            return
        expected = 0 if standing is None else standing.sequence
        if expected > self.state.sequence:
            return
        now = self.fleet_now() if self._clock.set else self.world.wall
        document = self.leadership.document(self.state, codec.rfc3339(now))
        self._events += 1
        id_ = EventId(f"{self.name}-{self._start}-claim-{self._events}")
        event = self._envelope(now).seal(subjects.CONTROL_EPOCH, "control.claimed", document, id_)
        fence = yield from self.ask(lambda: self.world.log.write(event, expected, self.world.now))
        if isinstance(fence, Lost):
            return
        if fence is None:
            self.leadership.fell()
            return
        self.leadership.claimed(fence, self.world.now)
        self.world.seen["a lead was claimed"] += 1
        yield from self._folded(fence)

    def _envelope(self, now: float | None = None) -> Envelope:
        assert self.state.log_id is not None
        return Envelope(
            log=self.state.log_id,
            control=self.leadership.control,
            now=self.fleet_now() if now is None else now,
            seen=self.state.sequence,
            epoch=self.leadership.fence,
        )

    def _write(self, envelope: Envelope, drafts: Sequence[Draft]) -> Generator[float, None, bool]:
        batch = [envelope.draft(draft) for draft in drafts]
        fence = self.leadership.fence
        while True:
            found = yield from self.ask(lambda: self._append(batch, fence))
            if not isinstance(found, Lost):
                break
            self.world.seen["a batch was sent again"] += 1
        if found is None:
            self.world.seen["a batch was fenced"] += 1
            self.leadership.fell()
            return False
        yield from self._folded(found)
        return True

    def _append(self, batch: list[Sealed], fence: int) -> int | None:
        return self.world.log.append(batch, fence, self.world.now)

    def _folded(self, sequence: int) -> Steps:
        while self.state.sequence < sequence:
            yield AGAIN_SECONDS

    def _listen(self) -> None:
        """What came since it last listened: beats come once a second, and are not simulated one by one."""
        now = self.world.now
        if self.connected:
            while self._listened + 1.0 < now:
                self._listened += 1.0
                self.hearing.turn(self._listened, connected=True)
        self._listened = now
        self.hearing.turn(now, connected=self.connected)
        since = self.hearing.since
        for program in self.world.programs if since is not None else ():
            at = program.last_beat()
            if at is None or since is None or at < since or self._heard.get(program.name) == at:
                continue
            self._heard[program.name] = at
            self._hear(program, at)

    def _hear(self, program: Program, at: float) -> None:
        match program:
            case Agent() if program.registered:
                self.hearing.node(NodeId(program.name), at)
            case Router():
                self.hearing.router(program.id, program.incarnation, program.applied_at(at), at)
            case Control() if program is not self and program.state.log_id is not None:
                self.leadership.heard(program.beat(), at)
            case _:
                pass


def _state_at(world: World, sequence: int) -> list[Message]:
    newest = {
        message.subject: message
        for message in world.log.messages[:sequence]
        if message.subject.startswith(subjects.STATE_ROOT)
    }
    return sorted(newest.values(), key=lambda message: message.sequence)
