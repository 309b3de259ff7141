"""Control services as real processes, and a node without engines that speaks an agent's part."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from schemas import codec, subjects
from schemas.api import ASKED_HEADER
from schemas.beats import AgentBeat
from schemas.documents import Assignment, Document, ShardPhase, ShardStatus
from schemas.events import Event, log_prefix
from schemas.ids import EventId, LogId, NodeId
from services.log.connect import Connection
from services.log.guarded import Sealed, write
from services.log.snapshot import get, get_from_log
from tests.builders import AT, a_node
from tests.support.nats_cluster import NatsCluster
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port
from tests.support.programs import Program
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


class Control:
    """One control service."""

    def __init__(
        self,
        name: str,
        nats: NatsServer | NatsCluster | Proxy,
        root: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.data = root / name
        self.address = f"127.0.0.1:{free_port()}"
        env = {
            "FLOTILLA_NATS_URL": nats.url,
            "FLOTILLA_DATA_DIR": str(self.data),
            "FLOTILLA_CONTROL_NAME": name,
            "FLOTILLA_CONTROL_LISTEN": self.address,
        }
        self.program = Program(name, "services.control", env | dict(settings or {}), root)

    def token(self) -> str:
        return (self.data / "control" / "admin.token").read_text().strip()

    async def call(
        self, path: str, body: object = None, token: str | None = None, mark: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """GET, or POST of a JSON body. A redirect is followed with the token of this control."""
        return await asyncio.to_thread(self._call, path, body, token, mark)

    def _call(
        self, path: str, body: object, token: str | None, mark: str
    ) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"http://{self.address}/api/v1/{path}")
        request.add_header(ASKED_HEADER, mark)
        request.add_header("Authorization", f"Bearer {self.token() if token is None else token}")
        if body is not None:
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                body_of = error.read()
            return error.code, json.loads(body_of) if body_of else dict(error.headers)

    async def ask(self, path: str) -> dict[str, Any] | None:
        """None: no answer, or a refusal."""
        try:
            status, answer = await self.call(path)
        except OSError:
            return None
        return answer if status == 200 else None

    async def until_leading(self) -> dict[str, Any]:
        return await self.until_status(lambda status: status["leading"], "leads")

    async def until_status(
        self, true: Callable[[dict[str, Any]], object], what: str
    ) -> dict[str, Any]:
        async def asked() -> dict[str, Any] | None:
            status = await self.ask("status")
            return status if status is not None and true(status) else None

        return await eventually(asked, f"{self.name} {what}")

    async def apply(self, source: str, **options: object) -> tuple[int, dict[str, Any]]:
        return await self.call("catalog", {"source": source, **options})


class Controls:
    """All control services of a test, ended with it."""

    def __init__(self, nats: NatsServer | NatsCluster | Proxy, root: Path) -> None:
        self._nats = nats
        self._root = root
        self._all: list[Control] = []

    def start(self, name: str = "control-1", settings: Mapping[str, str] | None = None) -> Control:
        control = Control(name, self._nats, self._root, settings)
        self._all.append(control)
        control.program.start()
        return control

    def kill(self) -> None:
        for control in self._all:
            control.program.kill()


class Node:
    """Says of its shards what a test tells it to; has a /livez to probe."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.info = a_node(name)
        self.name = NodeId(name)
        self.beating = True
        self._connection = connection
        self._log: LogId | None = None
        self._expected: dict[str, int] = {}
        self._writes = 0

    async def _put(self, subject: str, document: Document) -> None:
        assert self._log is not None
        self._writes += 1
        event = Event(
            id=EventId(f"{self.name}-{self._writes}"),
            log=log_prefix(self._log),
            type="test.reported",
            at=AT,
            src=f"agent/{self.name}",
            data=codec.raw(document),
        )
        sealed = Sealed(subject, event.id, codec.encode(event))
        written = await write(self._connection, sealed, self._expected.get(subject, 0))
        assert hasattr(written, "sequence"), written
        standing = await get_from_log(self._connection, subject)
        assert standing is not None
        self._expected[subject] = standing.sequence

    async def join(self, log: LogId, admin_port: int) -> None:
        self._log = log
        self.info = replace(self.info, admin_address=f"127.0.0.1:{admin_port}")
        await self._put(subjects.node_info(self.name), self.info)

    async def beat(self) -> None:
        while True:
            if self.beating:
                beat = AgentBeat(
                    node=self.name,
                    incarnation=self.info.incarnation,
                    log=self._log,
                    highest=0,
                    assignment=0,
                )
                await self._connection.publish(subjects.agent_beat(self.name), codec.encode(beat))
            await asyncio.sleep(0.2)

    async def assignment(self) -> Assignment | None:
        stored = await get(self._connection, subjects.assignment(self.name))
        if stored is None:
            return None
        return codec.decode(codec.decode_event(stored.payload).data, Assignment)

    async def until_assigned(self, count: int) -> Assignment:
        async def asked() -> Assignment | None:
            found = await self.assignment()
            return found if found is not None and len(found.shards) == count else None

        return await eventually(asked, f"{self.name} is assigned {count} shards")

    async def report(self, phase: ShardPhase) -> None:
        """Of every shard that is assigned."""
        assignment = await self.assignment()
        assert assignment is not None
        for slot, shard in enumerate(assignment.shards):
            status = ShardStatus(
                node=self.name,
                replica=shard.replica,
                model=shard.model,
                rank=0,
                phase=phase,
                attempt=shard.attempt,
                run=0,
                port=shard.launch.port,
                engine=shard.launch.engine,
                since=AT,
                incarnation=self.info.incarnation,
            )
            await self._put(subjects.node_shard(self.name, slot), status)


@asynccontextmanager
async def a_live_node(name: str, connection: Connection, log: LogId) -> AsyncGenerator[Node]:
    """Joined, beating, and answering probes until the block ends."""

    async def livez(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    node = Node(name, connection)
    server = await asyncio.start_server(livez, "127.0.0.1", 0)
    async with server:
        await node.join(log, server.sockets[0].getsockname()[1])
        beats = asyncio.ensure_future(node.beat())
        try:
            yield node
        finally:
            beats.cancel()
