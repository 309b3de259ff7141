"""A router that follows a real log, written by a test in control's place."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
import pytest

from schemas import codec, subjects
from schemas.beats import ControlBeat, EngineLoad, NodeLoad, RouterBeat
from schemas.documents import (
    CatalogPointer,
    CatalogRevision,
    Document,
    EndpointShard,
    Gone,
    RouterReport,
)
from schemas.ids import ControlId, LogId, NodeId, ReplicaId, RouterId
from services.log import api, identity, streams
from services.log.connect import Connection
from services.log.door import Door
from services.log.message import Message
from services.log.own import own_documents
from services.log.snapshot import get, get_from_log
from services.log.stored import Stored
from services.router import disk, logged
from services.router.config import Config
from services.router.program import Router
from services.router.source import Standing
from tests.builders import LOG_ID, a_genesis, an_event
from tests.support import waiting
from tests.support.nats_server import NatsServer
from tests.support.ports import free_ports
from tests.support.proxy import Proxy
from tests.support.router import TIMING, a_catalog, a_shard, an_endpoint, eventually
from tests.support.upstream import DONE, Received, Upstream, Wire, chats, upstreams

ROUTER = RouterId("router-1")
TINY = "models: {tiny: {engine: llamacpp, source: /m, aliases: [small]}}"
BOTH = "models: {tiny: {engine: llamacpp, source: /m}, big: {engine: llamacpp, source: /b}}"
BIG = "models: {big: {engine: llamacpp, source: /b}}"


class Leader:
    """Writes what control would."""

    def __init__(self, connection: Connection, log_id: LogId = LOG_ID) -> None:
        self.connection = connection
        self.log_id = log_id
        self.events = 0

    async def put(self, subject: str, document: object) -> int:
        self.events += 1
        payload = an_event(document, id_=f"e{self.events}", log=self.log_id)
        answer = api.pub_ack(await self.connection.request(subject, payload, 5.0))
        assert answer.error is None, answer
        return answer.seq

    async def begin(self, parent: LogId | None = None) -> None:
        await self.put(subjects.GENESIS, a_genesis(self.log_id, parent))

    async def swap(self, revision: int, text: str) -> int:
        catalog = a_catalog(text)
        document = CatalogRevision(revision=revision, hash=catalog.hash, source=catalog.source())
        await self.put(subjects.catalog_revision(revision), document)
        return await self.point(revision, catalog.hash)

    async def point(self, revision: int, digest: str) -> int:
        pointer = CatalogPointer(revision=revision, hash=digest, author="tests")
        return await self.put(subjects.CATALOG, pointer)

    async def endpoints(self, *addresses: str, model: str = "tiny") -> int:
        listed = [an_endpoint(a, f"{model}-{n}-1") for n, a in enumerate(addresses)]
        return await self.publish(a_shard(*listed, model=model))

    async def publish(self, shard: EndpointShard) -> int:
        return await self.put(subjects.endpoints(shard.model, shard.shard), shard)

    async def beat(self, routing: int, damaged: str = "") -> None:
        beat = ControlBeat(
            control=ControlId("c"),
            incarnation="1",
            epoch=1,
            log=self.log_id,
            head=routing,
            routing=routing,
            damaged=damaged,
        )
        await self.connection.publish(subjects.control_beat(ControlId("c")), codec.encode(beat))


@dataclass
class Running:
    """A router in this process."""

    router: Router
    source: logged.Logged
    client: aiohttp.ClientSession
    admin: aiohttp.ClientSession

    @property
    def standing(self) -> Standing:
        return self.source.standing()

    def routed(self) -> dict[str, list[str]]:
        return {
            name: [r.endpoint.address for r in (*target.first, *target.last)]
            for name, target in self.router.table.targets.items()
        }

    async def applied(self, sequence: int) -> None:
        await eventually(lambda: self.standing.applied >= sequence)

    async def ask(self, model: str = "tiny") -> tuple[int, bytes]:
        body: dict[str, object] = {"model": model, "messages": [], "stream": True}
        async with self.client.post("/v1/chat/completions", json=body) as response:
            return response.status, await response.read()

    async def readiness(self) -> str:
        async with self.admin.get("/readyz") as response:
            return await response.text()

    async def ready(self) -> int:
        async with self.admin.get("/readyz") as response:
            return response.status


@asynccontextmanager
async def a_router(
    url: str, folder: Path, *, seed: Path | None = None, report_seconds: float = 0.1
) -> AsyncGenerator[Running, None]:
    client, admin = free_ports(2)
    config = Config(
        name=ROUTER,
        listen=f"127.0.0.1:{client}",
        admin_listen=f"127.0.0.1:{admin}",
        nats=Door(url=url),
        data=folder,
        catalog=None if seed is None else seed / "catalog.yaml",
        endpoints=None if seed is None else seed / "endpoints.yaml",
        control_plane=True,
        timing=TIMING,
        max_body_bytes=1 << 20,
        report_seconds=report_seconds,
    )
    router = Router(config, ROUTER, Random(1))
    made: list[logged.Logged] = []
    running = asyncio.ensure_future(logged.run_with_log(config, router, made.append))
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{client}") as client_session,
        aiohttp.ClientSession(f"http://127.0.0.1:{admin}") as admin_session,
    ):
        try:
            await eventually(lambda: running.done() or router.listening)
            assert not running.done(), running.exception()
            yield Running(router, made[0], client_session, admin_session)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@pytest.fixture
async def leader(log: Connection) -> Leader:
    made = Leader(log)
    await made.begin()
    return made


async def test_follows_catalogs_and_endpoints_by_push(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: C2, C3, C5, T2"""
    async with Upstream() as engine, a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(engine.address))
        assert (await router.ask("small"))[0] == 200
        assert await router.ready() == 200
        await leader.endpoints(engine.address, model="big")  # Before any catalog has it.
        await router.applied(await leader.swap(2, BOTH))
        assert (await router.ask("big"))[0] == 200
        assert (await router.ask("small"))[0] == 404
        await router.applied(await leader.swap(3, BIG))
        assert (await router.ask("tiny"))[0] == 404
        assert (await router.ask("big"))[0] == 200
        assert (router.standing.mode, router.standing.revision) == ("log", 3)


async def test_what_stood_in_the_log_before_is_read(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T2"""
    many = [an_endpoint(f"127.0.0.1:{port}", f"tiny-{port}-1") for port in range(1, 601)]
    await leader.publish(a_shard(*many[:500], shard=0, shards=2))
    await leader.publish(a_shard(*many[500:], shard=1, shards=2))
    last = await leader.swap(1, TINY)
    async with a_router(nats.url, tmp_path) as router:
        await router.applied(last)
        assert len(router.routed()["tiny"]) == 600


async def test_an_empty_log_is_an_answer(nats: NatsServer, leader: Leader, tmp_path: Path) -> None:
    async with a_router(nats.url, tmp_path) as router:
        await eventually(lambda: router.router.table.known)
        assert (await router.ask())[0] == 404
        assert await router.ready() == 200


async def test_before_anything_is_known_it_says_that_it_starts(
    nats: NatsServer, tmp_path: Path
) -> None:
    """# spec: T1"""
    nats.kill()
    async with a_router(nats.url, tmp_path) as router:
        status, answer = await router.ask()
        assert status == 503
        assert json.loads(answer)["error"]["code"] == "starting"
        assert await router.ready() == 503
        async with router.client.get("/v1/models") as response:
            assert response.status == 503


async def test_serves_on_while_nats_is_away_and_reads_what_it_missed(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T9"""
    async with upstreams(chats, chats) as (one, two), a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(one.address))
        nats.kill()
        for _ in range(20):
            assert (await router.ask())[1].endswith(DONE)
        await eventually(lambda: not router.standing.connected)
        assert (await router.ask())[1].endswith(DONE)
        nats.start()
        await leader.connection.wait_connected()
        last = await leader.endpoints(two.address)
        await router.applied(last)
        assert router.routed() == {"tiny": [two.address]}
        assert (await router.ask())[1].endswith(DONE)


async def test_restarted_without_nats_it_serves_from_its_disk_copy(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T9"""
    async with Upstream() as engine:
        await leader.swap(1, TINY)
        last = await leader.endpoints(engine.address)
        async with a_router(nats.url, tmp_path) as router:
            await router.applied(last)
        nats.kill()
        async with a_router(nats.url, tmp_path) as router:
            modes = [router.standing.mode]
            assert await router.ready() == 200
            assert (await router.ask("small"))[1].endswith(DONE)
            nats.start()
            await leader.connection.wait_connected()
            await router.applied(await leader.swap(2, BOTH))
            assert set(router.routed()) == {"tiny", "big"}
            assert [*modes, router.standing.mode] == ["disk", "log"]


async def test_the_disk_copy_is_written_while_it_runs(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T9"""
    async with a_router(nats.url, tmp_path):
        await leader.swap(7, TINY)

        def kept() -> bool:
            copy = disk.load(tmp_path)
            return copy is not None and copy.revision == 7

        await eventually(kept)


async def test_a_seed_serves_until_the_log_speaks(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: C4"""
    async with upstreams(chats, chats) as (seeded, placed):
        (tmp_path / "catalog.yaml").write_text(BOTH)
        entry = {"model": "tiny", "address": seeded.address, "engine": "llamacpp"}
        (tmp_path / "endpoints.yaml").write_text(json.dumps([entry]))
        async with a_router(nats.url, tmp_path / "data", seed=tmp_path) as router:
            assert (await router.ask())[1].endswith(DONE)
            assert router.standing.mode == "seed"
            await leader.endpoints(placed.address)
            await router.applied(await leader.swap(1, TINY))
            assert router.routed() == {"tiny": [placed.address]}
            assert (await router.ask())[1].endswith(DONE)
            assert len(placed.received) == 1


async def recreate(connection: Connection) -> None:
    """LOG is deleted and made anew, STATE too."""
    for name in (subjects.LOG, subjects.STATE):
        await connection.request(f"$JS.API.STREAM.DELETE.{name}", b"", 5.0)
    await streams.create(connection)


@pytest.mark.parametrize("link_lost", [True, False])
async def test_another_log_is_not_followed_until_it_names_the_known_one_as_its_parent(
    nats: NatsServer, leader: Leader, tmp_path: Path, link_lost: bool
) -> None:
    """# spec: L1, T9"""
    async with upstreams(chats, chats) as (good, bad), a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(good.address))
        await recreate(leader.connection)
        stranger = Leader(leader.connection, LogId("f" * 32))
        for _ in range(20):
            await stranger.endpoints(bad.address)  # Beyond the sequence that was known.
        await stranger.begin()
        await stranger.swap(1, BIG)
        await stranger.endpoints(bad.address, model="big")
        if link_lost:
            nats.kill()
            nats.start()
        await eventually(lambda: router.standing.damage)
        assert LOG_ID in router.standing.damage
        assert router.routed() == {"tiny": [good.address]}
        assert (await router.ask())[1].endswith(DONE)
        await stranger.connection.wait_connected()
        heir = Leader(leader.connection, LogId("a" * 32))
        await recreate(heir.connection)
        await heir.begin(parent=LOG_ID)
        await heir.swap(1, BOTH)
        await heir.endpoints(good.address, model="big")
        await eventually(lambda: not router.standing.damage)
        await eventually(lambda: router.routed() == {"tiny": [], "big": [good.address]})
        assert router.standing.log == "a" * 32


async def test_a_push_of_another_log_shows_the_damage_at_once(
    nats: NatsServer, leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """# spec: L1, T9"""
    monkeypatch.setattr(identity, "LOOK_SECONDS", 3600.0)
    async with a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints("127.0.0.1:1"))
        await recreate(leader.connection)
        stranger = Leader(leader.connection, LogId("f" * 32))
        for _ in range(20):
            await stranger.endpoints("127.0.0.1:2")  # Beyond the sequence that was known.
        await eventually(lambda: router.standing.damage)
        assert router.routed() == {"tiny": ["127.0.0.1:1"]}


async def test_nothing_that_comes_over_a_new_link_is_applied_before_the_log_is_known(
    nats: NatsServer, leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """# spec: L1, T9"""

    async def slow_get(connection: Connection, subject: str) -> Stored | None:
        await asyncio.sleep(1.0)
        return await get_from_log(connection, subject)

    proxy = Proxy(nats.port)
    await proxy.start()
    async with a_router(proxy.url, tmp_path) as router:
        await leader.swap(1, BOTH)
        for _ in range(20):
            await leader.endpoints("127.0.0.1:1")
        await router.applied(await leader.endpoints("127.0.0.1:1"))
        proxy.drop = lambda _: True
        await recreate(leader.connection)  # The same id, but shorter.
        await leader.begin()
        await leader.endpoints("127.0.0.1:2", model="big")
        monkeypatch.setattr(identity, "get_from_log", slow_get)
        proxy.drop = lambda _: False
        await proxy.cut()
        await eventually(lambda: router.standing.damage)
        assert router.routed() == {"tiny": ["127.0.0.1:1"], "big": []}
    await proxy.close()


async def test_damage_shows_in_the_leaders_beat_and_outlasts_a_restart(
    nats: NatsServer, leader: Leader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """# spec: L1, T9"""
    monkeypatch.setattr(identity, "LOOK_SECONDS", 3600.0)
    async with Upstream() as engine:
        async with a_router(nats.url, tmp_path) as router:
            await leader.swap(1, TINY)
            await router.applied(await leader.endpoints(engine.address))
            await recreate(leader.connection)
            stranger = Leader(leader.connection, LogId("f" * 32))

            async def beaten() -> None:
                while not router.standing.damage:
                    await stranger.beat(routing=1)
                    await asyncio.sleep(0.1)

            async with asyncio.timeout(30):
                await beaten()
            assert (await router.ask())[1].endswith(DONE)
        async with a_router(nats.url, tmp_path) as router:
            await eventually(lambda: router.standing.damage)
            assert router.standing.mode == "disk"
            assert (await router.ask())[1].endswith(DONE)
            async with router.admin.get("/api/v1/router") as response:
                assert LOG_ID in (await response.json())["damage"]
            async with router.admin.get("/metrics") as response:
                assert "flotilla_router_log_damaged 1.0" in await response.text()


async def test_a_document_whose_push_was_lost_is_read_when_the_leader_announces_it(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T11, R7"""
    async with a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints("127.0.0.1:1"))
        connection = leader.connection
        info = await api.call(connection, f"STREAM.INFO.{subjects.LOG}", None, streams.StreamInfo)
        mute = {key: value for key, value in info.config.items() if key != "republish"}
        await api.call(connection, f"STREAM.UPDATE.{subjects.LOG}", mute, streams.StreamInfo)
        last = await leader.endpoints("127.0.0.1:2")
        assert router.standing.applied < last
        async with asyncio.timeout(30):
            while router.routed() != {"tiny": ["127.0.0.1:2"]}:
                await leader.beat(routing=last)
                await asyncio.sleep(0.2)
        await router.applied(last)


async def test_a_catalog_that_is_refused_leaves_the_last_one_serving(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: C1"""
    async with Upstream() as engine, a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(engine.address))
        broken = CatalogRevision(revision=2, hash="x", source=codec.raw({"models": {"a": {}}}))
        await leader.put(subjects.catalog_revision(2), broken)
        await router.applied(await leader.point(2, "x"))
        assert router.standing.refused
        assert router.standing.revision == 1
        assert (await router.ask())[1].endswith(DONE)


async def test_requests_cost_no_message(
    nats: NatsServer, leader: Leader, connection: Connection, tmp_path: Path
) -> None:
    """# spec: C3, T11, R7"""
    heard: list[Message] = []
    await connection.subscribe("flotilla.>", heard.append)
    await connection.subscribe("$JS.API.>", heard.append)
    async with (
        Upstream() as engine,
        a_router(nats.url, tmp_path, report_seconds=3600) as router,
    ):
        await leader.swap(1, TINY)
        last = await leader.endpoints(engine.address)
        await router.applied(last)
        await eventually(lambda: any(beat.applied >= last for beat in beats(heard)))
        heard.clear()
        for _ in range(300):
            assert (await router.ask())[0] == 200
        told = {message.subject for message in heard}
        looks = {
            f"$JS.API.STREAM.INFO.{subjects.LOG}",
            f"$JS.API.DIRECT.GET.{subjects.LOG}.{subjects.GENESIS}",
        }  # Every few seconds: whether this is still the same log.
        assert told <= {subjects.router_beat(ROUTER)} | looks
        assert len(heard) < 100


def beats(heard: list[Message]) -> list[RouterBeat]:
    return [
        codec.decode(message.payload, RouterBeat)
        for message in heard
        if message.subject == subjects.router_beat(ROUTER)
    ]


async def test_figures_of_agents_reach_the_table(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: T3"""
    async with a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints("127.0.0.1:1"))
        ((_, _, live),) = router.router.table.endpoints()
        load = NodeLoad(
            node=NodeId("n"), engines={ReplicaId("tiny-0-1"): EngineLoad(running=2, waiting=1)}
        )
        await leader.connection.publish(subjects.load(NodeId("n")), b"nonsense")
        foreign = NodeLoad(
            node=NodeId("n"), engines={ReplicaId("tiny-0-1"): EngineLoad(running=99)}
        )
        await leader.connection.publish(subjects.load(NodeId("m")), codec.encode(foreign))
        await eventually(lambda: router.standing.beats_dropped == 2)
        assert live.figures is None
        await leader.connection.publish(subjects.load(NodeId("n")), codec.encode(load))
        await eventually(lambda: live.figures is not None)
        assert live.figures is not None
        assert (live.figures.others, live.figures.waiting) == (2, 1)


async def test_reports_its_uses_and_what_is_gone(
    nats: NatsServer, leader: Leader, connection: Connection, tmp_path: Path
) -> None:
    """# spec: T7, T8, C5"""

    async def reported() -> Document | None:
        found = await get(connection, subjects.router_report(ROUTER, 0))
        if found is None:
            return None
        event = codec.decode_event(found.payload)
        assert (event.src, event.log) == ("router/router-1", LOG_ID[:8])
        kind = Gone if b'"gone":true' in bytes(event.data) else RouterReport
        return codec.decode(event.data, kind)

    async def until_reported(uses: dict[str, list[str]]) -> None:
        async with asyncio.timeout(30):
            while True:
                report = await reported()
                if isinstance(report, RouterReport) and uses == {
                    use.model: sorted(use.last_used) for use in report.use
                }:
                    return
                await asyncio.sleep(0.05)

    async with Upstream() as engine, a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(engine.address, "127.0.0.1:1"))
        await until_reported({"tiny": []})
        used = router.router.used
        while used.of(ReplicaId("tiny-0-1")) is None or used.of(ReplicaId("tiny-1-1")) is None:
            await router.ask()
        await until_reported({"tiny": ["tiny-0-1", "tiny-1-1"]})
        await leader.swap(2, "models: {}")
        await until_reported({})
    async with a_router(nats.url, tmp_path):  # Another start writes over the reports of the first.
        await leader.swap(3, BIG)
        await leader.endpoints("127.0.0.1:1", model="big")
        await until_reported({"big": []})


async def test_whatever_comes_upon_its_subjects_the_router_puts_right_by_itself(
    nats: NatsServer,
    leader: Leader,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """# spec: L5"""
    monkeypatch.setattr(logged, "CHECK_SECONDS", 0.1)
    src = f"router/{ROUTER}"

    async def stands_right() -> bool:
        pattern = subjects.router_reports(ROUTER)
        found = await own_documents(connection, pattern, RouterReport, LOG_ID)
        report = found.pop(subjects.router_report(ROUTER, 0), None)
        return report is not None and not found

    async with a_router(nats.url, tmp_path):
        await waiting.eventually(stands_right, "only the report stands there")
        for payload in (
            b"junk",
            an_event({}, src=src, version=99),
            an_event({}, src="agent/router-1", version=99),
            an_event({}, src=src, log=LogId("e" * 32)),
            an_event(Gone(id=ROUTER)),
        ):
            for chunk in (0, 7):
                await connection.request(subjects.router_report(ROUTER, chunk), payload, 5.0)
            await waiting.eventually(stands_right, "only the report stands there")


async def test_two_routers_of_one_name_say_so_and_only_one_writes(
    nats: NatsServer, leader: Leader, connection: Connection, tmp_path: Path
) -> None:
    """# spec: T7"""
    writers: list[str] = []

    def note(message: Message) -> None:
        event = codec.decode_event(message.payload)
        writers.append(codec.decode(event.data, RouterReport).incarnation)

    async def says(router: Running, word: str) -> None:
        async with asyncio.timeout(30):
            while word not in await router.readiness():  # noqa: ASYNC110 - it has no event.
                await asyncio.sleep(0.05)
        assert await router.ready() == 200

    async with Upstream() as engine, a_router(nats.url, tmp_path / "a") as first:
        await leader.swap(1, TINY)
        await first.applied(await leader.endpoints(engine.address))
        async with a_router(nats.url, tmp_path / "b") as second:
            for router in (first, second):
                await says(router, "another router runs as router-1")
                assert router.router.registry.get_sample_value("flotilla_router_name_in_use") == 1
            await connection.subscribe(subjects.live(subjects.router_report(ROUTER, 0)), note)
            await connection.barrier()
            for revision in range(2, 8):
                text = TINY if revision % 2 else BOTH
                sequence = await leader.swap(revision, text)
                await leader.endpoints(engine.address, model="big")
                for router in (first, second):
                    await router.applied(sequence)
                    await router.ask()
                await asyncio.sleep(0.3)  # Ticks of both.
            assert len(set(writers)) == 1
            assert len(writers) >= 2
        await says(first, "ok\n")
        await eventually(lambda: writers[-1] == first.source.incarnation)


def more_than(answers: list[bytes], count: int) -> bool:
    return len(answers) > count


async def test_nothing_is_left_of_a_model_that_went_while_it_was_busy(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: C5, T2"""
    asked, go = asyncio.Event(), asyncio.Event()

    async def waits(wire: Wire, received: Received) -> None:
        asked.set()
        await go.wait()
        await chats(wire, received)

    async with Upstream(waits) as engine, a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(engine.address))
        async with asyncio.TaskGroup() as group:
            request = group.create_task(router.ask())
            await asked.wait()
            await leader.swap(2, "models: {}")
            await router.applied(await leader.endpoints())
            assert len(router.router.table.keys()) == 1
            go.set()
        status, answer = request.result()
        assert (status, answer.endswith(DONE)) == (200, True)
        await eventually(lambda: not router.router.table.keys())
        await engine.closed()


async def test_a_swap_in_the_middle_of_requests_fails_none(
    nats: NatsServer, leader: Leader, tmp_path: Path
) -> None:
    """# spec: C2, C8"""

    async def slow(wire: Wire, received: Received) -> None:
        await asyncio.sleep(0.02)
        await chats(wire, received)

    async with upstreams(slow, slow) as (one, two), a_router(nats.url, tmp_path) as router:
        await leader.swap(1, TINY)
        await router.applied(await leader.endpoints(one.address, two.address))
        stop = asyncio.Event()
        answers: list[bytes] = []

        async def client() -> None:
            while not stop.is_set():
                answers.append((await router.ask())[1])

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(client())
            for revision in range(2, 22):
                last = await leader.swap(revision, (BOTH, TINY)[revision % 2])
                await leader.endpoints(*((one.address, two.address)[:: (-1) ** revision]))
                await router.applied(last)
                await eventually(partial(more_than, answers, len(answers) + 2))
            stop.set()
        assert all(answer.endswith(DONE) for answer in answers)
