"""A router process without NATS and control: two files, engines that are watched, exit codes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from schemas import codec
from schemas.api import RouterTable
from services.router.endpoints import Table
from services.router.static import StaticFiles
from tests.support.ports import free_ports
from tests.support.upstream import CHAT, DONE, Received, Upstream, Wire, chats, delta, upstreams

CATALOGS = Path("tests/data/catalogs")
METRICS = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n"


async def engine(wire: Wire, received: Received) -> None:
    """Healthy, with figures, and answers chats."""
    if received.head.startswith(b"GET /health "):
        await wire.json(200, {"status": "ok"})
    elif received.head.startswith(b"GET /metrics "):
        await wire.answer(200, METRICS.encode(), "Content-Type: text/plain")
    else:
        await chats(wire, received)


async def loading(wire: Wire, received: Received) -> None:
    await wire.json(503, {"error": {"message": "Loading model"}})


def write_files(folder: Path, catalog: str, *endpoints: tuple[str, str]) -> tuple[Path, Path]:
    listed = [{"model": m, "address": a, "engine": "llamacpp"} for m, a in endpoints]
    (folder / "catalog.yaml").write_text(catalog)
    (folder / "endpoints.yaml").write_text(json.dumps(listed))
    return folder / "catalog.yaml", folder / "endpoints.yaml"


@dataclass
class Running:
    """A router process."""

    process: asyncio.subprocess.Process
    port: int
    """For clients."""
    client: aiohttp.ClientSession
    admin: aiohttp.ClientSession

    async def table(self) -> RouterTable:
        async with self.admin.get("/api/v1/router") as response:
            assert response.status == 200
            return codec.decode(await response.read(), RouterTable)

    async def until(self, wanted: Callable[[RouterTable], bool]) -> RouterTable:
        async with asyncio.timeout(30):
            while True:
                if wanted(shown := await self.table()):
                    return shown
                await asyncio.sleep(0.05)

    async def chat(self, model: str = "tiny", stream: bool = False) -> aiohttp.ClientResponse:
        body: dict[str, object] = {"model": model, "messages": [], "stream": stream}
        return await self.client.post("/v1/chat/completions", json=body)


@asynccontextmanager
async def a_router(folder: Path, **settings: str) -> AsyncGenerator[Running, None]:
    client, admin = free_ports(2)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("FLOTILLA_")}
    own = {
        "LISTEN": f"127.0.0.1:{client}",
        "ADMIN_LISTEN": f"127.0.0.1:{admin}",
        "CONTROL_PLANE": "off",
        "CATALOG": str(folder / "catalog.yaml"),
        "ENDPOINTS": str(folder / "endpoints.yaml"),
    }
    env = {f"FLOTILLA_ROUTER_{name}": value for name, value in (own | settings).items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.router", "--data", str(folder)),
        env=inherited | env,
        stderr=asyncio.subprocess.PIPE,
    )
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{client}") as client_session,
        aiohttp.ClientSession(f"http://127.0.0.1:{admin}") as admin_session,
    ):
        try:
            yield Running(process, client, client_session, admin_session)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def listening(router: Running) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with router.admin.get("/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                assert router.process.returncode is None
            await asyncio.sleep(0.05)


TINY = "models: {tiny: {engine: llamacpp, source: /m}}"


async def test_serves_from_its_files_and_watches_the_engines_itself(tmp_path: Path) -> None:
    """# spec: C4, T3"""
    async with upstreams(engine, loading) as (well, ill), AsyncExitStack() as stack:
        write_files(tmp_path, TINY, ("tiny", well.address), ("tiny", ill.address))
        router = await stack.enter_async_context(a_router(tmp_path))
        await listening(router)
        shown = await router.until(
            lambda t: [(e.last_choice, e.waiting) for e in t.endpoints] == [(False, 2), (True, -1)]
        )
        assert (shown.mode, shown.connected, shown.models) == ("static", False, ("tiny",))
        assert shown.endpoints[0].idle_seconds < 0  # Nobody has asked: unknown.
        for _ in range(5):
            async with await router.chat() as response:
                assert await response.json() == CHAT
        shown = await router.table()
        assert shown.endpoints[0].idle_seconds >= 0
        ill.script = engine
        await router.until(lambda t: not t.endpoints[1].last_choice)
        await well.stop()
        await router.until(lambda t: t.endpoints[0].last_choice)
        async with await router.chat() as response:
            assert response.status == 200


async def test_the_files_are_read_again_and_a_bad_one_is_refused_whole(tmp_path: Path) -> None:
    """# spec: C4, C1, case HR-01"""
    texts = {
        name: (CATALOGS / f"HR-01-{name}.yaml").read_text()
        for name in ("good", "bad", "half", "good2")
    }
    async with Upstream(engine) as only:
        table = Table()
        one = ("tiny-chat", only.address)
        files = StaticFiles(table, *write_files(tmp_path, texts["good"], one))
        assert await files.read()
        target = table.find("tiny-chat")
        assert target is not None
        live = target.first[0].live
        before = table.catalog
        for name in ("bad", "half"):
            write_files(tmp_path, texts[name], one)
            assert not await files.read()
            assert files.standing().refused
            assert table.catalog is before
        (tmp_path / "catalog.yaml").unlink()
        assert not await files.read()
        write_files(tmp_path, texts["good"], one)
        assert await files.read()
        assert table.catalog is before  # The same again makes no new work.
        write_files(tmp_path, texts["good2"], one, ("big-chat", only.address))
        assert await files.read()
        assert set(table.targets) == {"tiny-chat", "big-chat"}
        assert table.find("tiny-chat") is target
        assert target.first[0].live is live


async def test_a_process_takes_a_changed_file_within_seconds(tmp_path: Path) -> None:
    """# spec: C2, C4"""
    async with Upstream(engine) as only:
        write_files(tmp_path, TINY, ("tiny", only.address))
        async with a_router(tmp_path) as router:
            await listening(router)
            both = "models: {tiny: {engine: llamacpp, source: /m}, new: {engine: llamacpp, source: /m}}"
            write_files(tmp_path, both, ("tiny", only.address), ("new", only.address))
            await router.until(lambda t: t.models == ("new", "tiny"))
            async with await router.chat("new") as response:
                assert response.status == 200


async def test_wrong_files_at_the_start_end_it_with_every_fault(tmp_path: Path) -> None:
    """# spec: C1, O8"""
    write_files(tmp_path, "models: {tiny: {engine: llamacp, sorce: /m}}")
    async with a_router(tmp_path) as router:
        _, errors = await router.process.communicate()
        assert router.process.returncode == 2
        assert errors.count(b"catalog.yaml:1:") >= 2


async def test_static_mode_without_files_is_refused(tmp_path: Path) -> None:
    """# spec: O8"""
    async with a_router(tmp_path, CATALOG="", ENDPOINTS="") as router:
        _, errors = await router.process.communicate()
        assert router.process.returncode == 2
        assert b"router.catalog" in errors


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with Upstream(engine) as only:
        write_files(tmp_path, TINY, ("tiny", only.address))
        async with a_router(tmp_path, LISTEN=only.address) as router:
            _, errors = await router.process.communicate()
            assert router.process.returncode == 1
            assert only.address.split(":")[1].encode() in errors


async def refuses_connections(router: Running) -> None:
    """Of new clients; those that are there may finish."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", router.port)
            except ConnectionRefusedError:
                assert router.process.returncode is None
                return
            writer.close()
            await asyncio.sleep(0.02)


async def test_told_to_end_it_finishes_what_is_short_and_breaks_off_the_rest(
    tmp_path: Path,
) -> None:
    """# spec: R3"""

    async def slow(wire: Wire, received: Received) -> None:
        if not received.head.startswith(b"POST"):
            await engine(wire, received)
            return
        await wire.events()
        await wire.chunk(delta())
        if received.json()["model"] == "endless":
            await wire.gone()
            return
        await asyncio.sleep(0.7)
        await wire.chunk(DONE)
        await wire.end()

    both = "models: {tiny: {engine: llamacpp, source: /m}, endless: {engine: llamacpp, source: /m}}"
    async with Upstream(slow) as only:
        write_files(tmp_path, both, ("tiny", only.address), ("endless", only.address))
        async with a_router(tmp_path) as router:
            await listening(router)
            short, endless = await asyncio.gather(
                router.chat(stream=True), router.chat("endless", stream=True)
            )
            ending = asyncio.ensure_future(endless.read())
            router.process.send_signal(signal.SIGTERM)
            await refuses_connections(router)
            assert not ending.done()
            assert (await short.read()).endswith(DONE)
            last = (await ending).removesuffix(b"\n\n").rpartition(b"\n\n")[2]
            assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "shutting_down"
            assert await router.process.wait() == 0
