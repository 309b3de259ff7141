"""Hears beats and probes silent nodes: the measured part of what `decide` is given. Shell.

Silence counts only while control hears its own voice: it says a word to itself through NATS at every
turn, leading or not, and a server that is frozen lets nothing through, the link still standing.

Beats are core NATS: each may be lost, none is stored, and none is believed but under the subject of the
sender that it names. An agent counts as heard only when it follows this log, the beat is of the
incarnation that last described the node, and the log has all that it runs (`moved.py`): not a stranger
with its name, and not an agent that has not written yet what it found.
"""

import asyncio
import secrets
from collections.abc import Callable
from time import monotonic

from schemas import subjects
from schemas.beats import AgentBeat, ControlBeat, RouterBeat
from schemas.documents import NodeInfo
from schemas.ids import ControlId, LogId, NodeId, RouterId
from services.control.damage import Reported
from services.control.deciding.silence import PROBE_SECONDS, UNREACHABLE_SECONDS, Hearing
from services.control.followers import Followers
from services.control.moved import untold
from services.fleet.addresses import parsed
from services.fleet.state import FleetState
from services.log.connect import Connection
from services.log.message import Message
from services.log.spoken import Spoken

TURN_SECONDS = 0.5
PROBE_TIMEOUT_SECONDS = 2.0
PROBES_AT_ONCE = 16
REPORT_SECONDS = 10.0
"""What a beat said is forgotten after this time."""
MOST_HEARD = 20_000
"""Agents, and routers, that are listened to at a time: anybody may beat under any name."""
ECHO_SECONDS = 2.0
"""Without our own words coming back through NATS for so long: nobody else's could have come."""

_INFO = ".info"


class Ears:
    """`run` keeps it current; everything else reads."""

    def __init__(
        self,
        connection: Connection,
        state: Callable[[], FleetState],
        followers: Followers,
        on_control: Callable[[ControlBeat], None],
        unreachable_after: float | None = UNREACHABLE_SECONDS,
    ) -> None:
        self.hearing = Hearing(unreachable_after)
        self.spoken = Spoken()
        self.routers: dict[tuple[RouterId, str], tuple[RouterBeat, float]] = {}
        """The last beat of each start of each router, and when it came. Old ones are forgotten."""
        self.controls: dict[tuple[ControlId, str], tuple[ControlBeat, float]] = {}
        """The same of control services, this one included."""
        self._agents: dict[NodeId, tuple[AgentBeat, float]] = {}
        self._connection = connection
        self._state = state
        self._followers = followers
        self._on_control = on_control
        self._reports: dict[str, tuple[Reported, float]] = {}
        self._echo = f"{subjects.ECHO_ROOT}{secrets.token_hex(8)}"
        self._echoed: float | None = None
        self._log: LogId | None = None
        self._probing: set[NodeId] = set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._connection.subscribe(subjects.ALL_AGENT_BEATS, self._on_agent)
        await self._connection.subscribe(subjects.ALL_ROUTER_BEATS, self._on_router)
        await self._connection.subscribe(subjects.ALL_CONTROL_BEATS, self._on_control_beat)
        await self._connection.subscribe(self._echo, self._on_echo)
        async with asyncio.TaskGroup() as probes:
            while True:
                now = monotonic()
                self.hearing.turn(now, connected=self._hears(now))
                self._forget(now)
                await self._connection.publish(self._echo, b"")
                for node, address in self._to_probe():
                    self._probing.add(node)
                    probes.create_task(self._probe(node, address))
                await asyncio.sleep(TURN_SECONDS)

    def _hears(self, now: float) -> bool:
        """A link may stand while the server at its other end is frozen."""
        echoed = self._echoed
        return self._connection.connected and echoed is not None and now - echoed < ECHO_SECONDS

    def _on_echo(self, _: Message) -> None:
        self._echoed = monotonic()
        self.hearing.turn(self._echoed, connected=self._connection.connected)

    def _forget(self, now: float) -> None:
        self._reports = {who: told for who, told in self._reports.items() if _is_new(told[1], now)}
        self._agents = {node: told for node, told in self._agents.items() if _is_new(told[1], now)}
        self.routers = {key: told for key, told in self.routers.items() if _is_new(told[1], now)}
        self.controls = {key: told for key, told in self.controls.items() if _is_new(told[1], now)}
        self._followers.forget(self._agents.__contains__)

    def folded(self, subject: str) -> None:
        """The state has taken this in: is it a node that joins, its silence begins now."""
        if subject.endswith(_INFO):
            held = self._state().held(subject)
            if held is not None and isinstance(held.document, NodeInfo):
                info = held.document
                self.hearing.joined(info.node, info.incarnation, monotonic())

    def opened(self) -> None:
        """The state was read anew."""
        now, state = monotonic(), self._state()
        if state.log_id != self._log:
            self._log = state.log_id
            self.hearing.begin()
        for held in state.infos.values():
            self.hearing.joined(held.document.node, held.document.incarnation, now)

    def reports(self) -> list[Reported]:
        """What agents and routers said lately of the log that they follow."""
        now = monotonic()
        return [report for report, at in self._reports.values() if _is_new(at, now)]

    def followed(self) -> dict[str, LogId]:
        """Who said lately that he follows a log, and which."""
        now = monotonic()
        told = {report.who: report.log for report in self.reports()}
        for (control, _), (beat, at) in self.controls.items():
            if _is_new(at, now):
                told[f"control {control}"] = beat.log
        return {who: log_id for who, log_id in told.items() if log_id is not None}

    def hearing_seconds(self) -> float:
        """How long everybody who beats has had the time to be heard."""
        return self.hearing.measure(monotonic()).hearing_seconds

    def damaged_agents(self) -> dict[NodeId, str]:
        """Why agents that beat act on no assignment, where they say so."""
        now = monotonic()
        return {
            node: beat.damaged
            for node, (beat, at) in self._agents.items()
            if beat.damaged and _is_new(at, now)
        }

    def agents(self) -> list[AgentBeat]:
        """The last beat of each agent that beats."""
        now = monotonic()
        return [beat for beat, at in self._agents.values() if _is_new(at, now)]

    def _on_agent(self, message: Message) -> None:
        beat = self.spoken.read(message, AgentBeat, lambda beat: subjects.agent_beat(beat.node))
        if beat is None:
            return
        if beat.node not in self._agents and len(self._agents) >= MOST_HEARD:
            return
        now = monotonic()
        who = f"agent {beat.node}"
        self._reports[who] = Reported(who, beat.log, beat.highest), now
        self._agents[beat.node] = beat, now
        self._followers.agent(self._state(), beat, now)
        if not untold(self._state(), beat):
            self.hearing.node(beat.node, now)

    def _on_router(self, message: Message) -> None:
        beat = self.spoken.read(message, RouterBeat, lambda beat: subjects.router_beat(beat.router))
        if beat is None:
            return
        key = beat.router, beat.incarnation
        if key not in self.routers and len(self.routers) >= MOST_HEARD:
            return
        now = monotonic()
        who = f"router {beat.router}"
        self._reports[who] = Reported(who, beat.log, beat.highest), now
        self.routers[key] = beat, now
        self.hearing.router(beat.router, beat.incarnation, beat.applied, now)

    def _on_control_beat(self, message: Message) -> None:
        beat = self.spoken.read(
            message, ControlBeat, lambda beat: subjects.control_beat(beat.control)
        )
        if beat is None:
            return
        key = beat.control, beat.incarnation
        if beat.resigned:
            self.controls.pop(key, None)
        elif key in self.controls or len(self.controls) < MOST_HEARD:
            self.controls[key] = beat, monotonic()
        self._on_control(beat)

    def _to_probe(self) -> list[tuple[NodeId, str]]:
        """Nodes that have been silent for a while, as far as probes are free."""
        silence = self.hearing.measure(monotonic())
        silent = [
            (held.document.node, held.document.admin_address)
            for _, held in sorted(self._state().infos.items())
            if silence.of(held.document.node) >= PROBE_SECONDS
            and held.document.node not in self._probing
        ]
        return silent[: max(0, PROBES_AT_ONCE - len(self._probing))]

    async def _probe(self, node: NodeId, address: str) -> None:
        asked_at = monotonic()
        try:
            answered = await answers(address)
            self.hearing.probed(node, asked_at, answered=answered)
            await asyncio.sleep(TURN_SECONDS)  # Not again at once.
        finally:
            self._probing.discard(node)


def _is_new(at: float, now: float) -> bool:
    return now - at < REPORT_SECONDS


async def answers(address: str) -> bool:
    """Whether /livez at host:port says 200. By hand: no HTTP library is loaded before it is needed.

    What is no address, an agent's word, answers nothing.
    """
    found = parsed(address)
    if found is None:
        return False
    request = f"GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(*found)
            try:
                writer.write(request.encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, OverflowError, ValueError):
        return False
    return status.split()[1:2] == [b"200"]
