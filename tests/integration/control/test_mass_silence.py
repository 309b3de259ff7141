"""Ten nodes that beat on while control hears nobody; then ten of which most fall silent.

The real control service and nats-server; nodes without engines that speak an agent's part. How long
control hears nobody is ABSENCE_SECONDS, 20 unless the environment says otherwise: several times the
7 s after which a node is lost here.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from schemas import subjects
from schemas.events import Event
from schemas.ids import LogId
from services.log.connect import Connection
from tests.support.busy import BusyControl
from tests.support.control import Control, Node, a_live_node
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy
from tests.support.refold import read_log
from tests.support.waiting import eventually

ABSENCE_SECONDS = float(os.environ.get("ABSENCE_SECONDS", "20"))
NAMES = tuple(f"node-{n:02d}" for n in range(1, 11))
CATALOG = (
    "models:\n  one: {engine: llamacpp, source: /models/one.gguf, patience: 7s, replicas: 10,"
    " drain_grace: 1s}\n"
)


class Ten:
    """Ten nodes with one ready replica on each, on a nats-server of their own."""

    def __init__(self, nats: NatsServer, control: Control, nodes: list[Node]) -> None:
        self.nats = nats
        self.control = control
        self.nodes = {str(node.name): node for node in nodes}

    async def place(self) -> None:
        code, answer = await self.control.apply(CATALOG)
        assert code == 200, answer
        for node in self.nodes.values():
            await node.until_assigned(1)
            await node.report("ready")
        await self.until_routed(10)

    async def until_routed(self, count: int) -> None:
        async def routed() -> bool:
            answer = await self.control.ask("replicas")
            return answer is not None and sum(row["routed"] for row in answer["items"]) == count

        await eventually(routed, f"{count} replicas are routed")

    async def sequence(self) -> int:
        status = await self.control.ask("status")
        assert status is not None
        found: int = status["asOfSeq"]
        return found

    async def written(self, after: int) -> list[tuple[str, Event]]:
        """By control, after a sequence."""
        events = await read_log(self.nats.url, await self.sequence())
        return [
            (subject, event)
            for sequence, subject, event in events
            if sequence > after and event.src.startswith("control/")
        ]


@asynccontextmanager
async def ten_nodes(nats: NatsServer, control: Control) -> AsyncGenerator[Ten]:
    connection = Connection(nats.url, "test")
    async with AsyncExitStack() as stack:
        await connection.start()
        stack.push_async_callback(connection.close)
        await connection.wait_connected()
        log = LogId((await control.until_leading())["log"])
        nodes = [await stack.enter_async_context(a_live_node(n, connection, log)) for n in NAMES]
        ten = Ten(nats, control, nodes)
        await ten.place()
        yield ten


async def moved_nothing(ten: Ten, before: int) -> None:
    """Since `before`, at which all was well, and until a node really dies, which is noticed."""
    dead = ten.nodes[NAMES[-1]]
    dead.beating = False
    await ten.control.until_status(lambda s: s["nodes"].get("lost") == 1, "gives up the dead node")
    written = await ten.written(before)
    own = subjects.node_verdict(dead.name)
    verdicts = [subject for subject, _ in written if subject.endswith(".verdict")]
    assert verdicts == [own, own]
    kinds = [event.type for _, event in written]
    first = kinds.index("node.unreachable")
    assert set(kinds[:first]) <= {"control.claimed"}
    assert kinds.count("replica.placed") == 1
    assert "replica.draining" not in kinds
    assert "brake.engaged" not in kinds


async def stopped(nats: NatsServer, root: Path) -> None:
    """The process is stopped and goes on; afterwards most nodes really fall silent."""
    control = Control("control-1", nats, root)
    control.program.start()
    try:
        async with ten_nodes(nats, control) as ten:
            before = await ten.sequence()
            control.program.signal(signal.SIGSTOP)
            await asyncio.sleep(ABSENCE_SECONDS)
            control.program.signal(signal.SIGCONT)
            await control.until_leading()
            await moved_nothing(ten, before)
            await falls_silent(ten)
    finally:
        control.program.kill()


async def kept_busy(nats: NatsServer, root: Path) -> None:
    """Something blocks its event loop."""
    control = BusyControl("control-1", nats, root)
    control.begin()
    try:
        async with ten_nodes(nats, control) as ten:
            before = await ten.sequence()
            control.keep_busy(ABSENCE_SECONDS)
            await asyncio.sleep(ABSENCE_SECONDS)
            await control.until_leading()
            await moved_nothing(ten, before)
    finally:
        await asyncio.to_thread(control.end)


async def cut_off(nats: NatsServer, root: Path) -> None:
    """Only its link to NATS is cut: it runs on and hears nobody."""
    proxy = Proxy(nats.port)
    await proxy.start()
    control = Control("control-1", proxy, root)
    control.program.start()
    try:
        async with ten_nodes(nats, control) as ten:
            before = await ten.sequence()
            proxy.shut = True
            await proxy.cut()
            await control.until_status(lambda s: s["warnings"], "notices")
            await asyncio.sleep(ABSENCE_SECONDS)
            status = await control.ask("status")
            assert status is not None
            assert status["nodes"] == {"alive": 10}
            proxy.shut = False
            await control.until_status(
                lambda s: s["leading"] and not any("NATS" in line for line in s["warnings"]),
                "is back",
            )
            await moved_nothing(ten, before)
    finally:
        control.program.kill()
        await proxy.close()


async def falls_silent(ten: Ten) -> None:
    """Six of ten, and with the dead one seven: the brake, until it is ended by command."""
    control, before = ten.control, await ten.sequence()
    for name in NAMES[:6]:
        ten.nodes[name].beating = False
    status = await control.until_status(
        lambda s: s["nodes"].get("unreachable") == 6, "misses most nodes"
    )
    assert "brake on since" in status["attention"][0]
    assert status["brake"]["silent"] * 2 > status["brake"]["nodes"]
    since = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - since < 4:  # Their patience has passed.
        shown = await control.ask("status")
        assert shown is not None
        assert shown["nodes"] == {"alive": 3, "lost": 1, "unreachable": 6}
    kinds = [event.type for _, event in await ten.written(before)]
    assert kinds.count("brake.engaged") == 1
    assert "replica.placed" not in kinds
    request = {"state": "off", "reason": "they are switched off"}
    code, accepted = await control.call("brake", request)
    assert (code, accepted["changed"]) == (200, True)
    code, refused = await control.call("brake", request)
    assert (code, refused["code"]) == (409, "brake_is_off")
    await control.until_status(lambda s: s["nodes"].get("lost") == 7, "gives up what is silent")
    kinds = [event.type for _, event in await ten.written(before)]
    assert kinds.count("brake.engaged") == kinds.count("brake.released") == 1
    assert kinds.count("replica.placed") == 7  # One of the six had that of the dead node, too.
    assert kinds.count("command.accepted") == kinds.count("command.refused") == 1


# case: ND-01
# spec: L3 R4
async def test_what_control_did_not_hear_moves_nothing_and_mass_silence_engages_the_brake(
    tmp_path: Path,
) -> None:
    servers = [NatsServer(tmp_path / name / "nats") for name in ("stopped", "busy", "cut")]
    for server in servers:
        server.start()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(stopped(servers[0], tmp_path / "stopped"))
            group.create_task(kept_busy(servers[1], tmp_path / "busy"))
            group.create_task(cut_off(servers[2], tmp_path / "cut"))
    finally:
        for server in servers:
            server.kill()
