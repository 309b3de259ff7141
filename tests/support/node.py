"""One agent as a real process, and a stand-in for the control service that orders it about."""

import asyncio
import time
from pathlib import Path

import aiohttp

from schemas import codec, subjects
from schemas.beats import AgentBeat, NodeLoad
from schemas.documents import AssignedShard, Assignment, Genesis, NodeInfo, ShardStatus
from schemas.ids import LogId, NodeId, ReplicaId
from services.fleet.state import FleetState
from services.log import streams
from services.log.connect import Connection, Message, Unavailable
from services.log.snapshot import read_state
from services.log.stored import Stored
from services.log.write import Writer
from tests.support.ports import free_port, free_range
from tests.support.programs import Program
from tests.support.waiting import eventually, until

NODE = NodeId("node-1")


class Orders:
    """Writes what control would write, and reads what the agent wrote."""

    def __init__(self, connection: Connection, log_id: str = "0" * 32) -> None:
        self.connection = connection
        self.log_id = LogId(log_id)
        self.beats: list[AgentBeat] = []
        self.loads: list[NodeLoad] = []
        self.state = FleetState()
        self._writer: Writer | None = None
        self._writing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Streams, genesis, ears."""
        await streams.create(self.connection)
        self._writer = Writer(
            self.connection,
            source="control/test",
            log_id=self.log_id,
            now=time.time,
            may_replace=lambda _standing: True,
        )
        self._writing = asyncio.ensure_future(self._writer.run())
        await self.connection.subscribe(subjects.agent_beat(NODE), self._on_beat)
        await self.connection.subscribe(subjects.load(NODE), self._on_load)
        self._writer.put(subjects.GENESIS, "log.begun", Genesis(log_id=self.log_id, format=1))
        await self._writer.idle()

    async def end(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    def _on_beat(self, message: Message) -> None:
        self.beats.append(codec.decode(message.payload, AgentBeat))

    def _on_load(self, message: Message) -> None:
        self.loads.append(codec.decode(message.payload, NodeLoad))

    async def assign(self, *orders: AssignedShard) -> None:
        assert self._writer is not None
        document = Assignment(node=NODE, shards=orders)
        self._writer.put(subjects.assignment(NODE), "assignment.changed", document)
        await self._writer.idle()

    async def put_info(self, info: NodeInfo) -> None:
        """As another agent of this name would."""
        assert self._writer is not None
        self._writer.put(subjects.node_info(NODE), "node.described", info)
        await self._writer.idle()

    async def put_shard(self, status: ShardStatus) -> None:
        """As another agent of this name would."""
        assert self._writer is not None
        self._writer.put(subjects.node_shard(NODE, 0), "shard.ready", status)
        await self._writer.idle()

    async def look(self) -> FleetState:
        """The whole state as it stands."""
        while True:
            try:
                found, _ = await read_state(self.connection)
                break
            except Unavailable:  # NATS is being started again.
                await asyncio.sleep(0.05)
        state = FleetState()
        for stored in sorted(found, key=_sequence):
            state.apply(stored.sequence, stored.subject, stored.payload)
        self.state = state
        return state

    async def info(self) -> NodeInfo:
        """As soon as it stands there."""

        async def found() -> NodeInfo | None:
            held = (await self.look()).info(NODE)
            return held.document if held else None

        return await eventually(found, "the node described itself")

    async def shard(self, phase: str, replica: str = "tiny-0-1", run: int = 0) -> ShardStatus:
        """Its document, once it has this phase, in this run or a later one."""

        async def found() -> ShardStatus | None:
            for held in (await self.look()).shards_of(ReplicaId(replica)):
                if held.document.phase == phase and held.document.run >= run:
                    return held.document
            return None

        return await eventually(found, f"{replica} {phase}")


def _sequence(stored: Stored) -> int:
    return stored.sequence


class AgentProcess:
    """`python -m services.agent` over one data folder."""

    def __init__(self, root: Path, nats_url: str, **settings: str) -> None:
        self.data = root / "data"
        self.listen = f"127.0.0.1:{free_port()}"
        first, last = free_range(10)
        env = {
            "FLOTILLA_NATS_URL": nats_url,
            "FLOTILLA_DATA_DIR": str(self.data),
            "FLOTILLA_AGENT_NODE": NODE,
            "FLOTILLA_AGENT_LISTEN": self.listen,
            "FLOTILLA_AGENT_PORTS": f"{first}-{last}",
        }
        self.program = Program("agent", "services.agent", env | settings, root)

    async def readiness(self) -> tuple[int, str]:
        """Of its admin listener; 0: it does not listen."""
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.get(f"http://{self.listen}/readyz") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_exit(self) -> None:
        await until(lambda: not self.program.running)
