"""The official client against the router, in front of the real engine with a tiny random model."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionMessageParam

from tests.support.ports import free_ports
from tests.support.router import Door, a_door
from tests.support.tiny_gguf import write
from tests.support.upstream import Received, Upstream, Wire

MODELS = """
models:
  tiny: {engine: llamacpp, source: /m, aliases: [gpt-4o-mini]}
  embedder: {engine: llamacpp, source: /m, task: embed}
"""
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def start(model: Path) -> tuple[subprocess.Popen[bytes], str]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "services.agent.llamacpp_server", "-m", str(model)]
    command += ["--port", str(port), "-c", "4096", "-np", "4", "-t", "1", "-a", "tiny"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet), f"127.0.0.1:{port}"


async def loaded(address: str) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://{address}/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real llama.cpp server."""
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write(model)
    process, address = start(model)
    yield address
    process.kill()
    process.wait()


@pytest_asyncio.fixture
async def door(engine: str) -> AsyncGenerator[Door, None]:
    await loaded(engine)
    async with a_door(engine, catalog=MODELS) as made:
        yield made


@pytest_asyncio.fixture
async def client(door: Door) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_chat_whole_and_streamed(client: openai.AsyncOpenAI, door: Door) -> None:
    """# spec: T1"""
    whole = await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8)
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8
    stream = await client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].usage is not None
    assert door.metric("flotilla_router_requests_total", model="tiny", outcome="ok") == 2


async def test_an_alias_serves_as_the_model(client: openai.AsyncOpenAI) -> None:
    """# spec: C10"""
    answer = await client.chat.completions.create(
        model="gpt-4o-mini", messages=MESSAGES, max_tokens=2
    )
    assert answer.choices[0].message.content


async def test_completions_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    """# spec: T1"""
    whole = await client.completions.create(model="tiny", prompt="once", max_tokens=4)
    assert whole.choices[0].text
    stream = await client.completions.create(model="tiny", prompt="once", max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])


async def test_embeddings(client: openai.AsyncOpenAI, door: Door) -> None:
    """# spec: T1"""

    async def embeds(wire: Wire, received: Received) -> None:
        asked: list[str] = received.json()["input"]
        vectors = [
            {"object": "embedding", "index": n, "embedding": [float(n), 0.5]}
            for n, _ in enumerate(asked)
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        await wire.json(200, {"object": "list", "model": "m", "data": vectors, "usage": usage})

    async with Upstream(embeds) as upstream:
        door.serve(upstream.address, model="embedder")
        answer = await client.embeddings.create(model="embedder", input=["one", "two"])
    assert [item.embedding for item in answer.data] == [[0.0, 0.5], [1.0, 0.5]]


async def test_the_model_list(client: openai.AsyncOpenAI) -> None:
    """# spec: T1, C10"""
    listed = [model.id async for model in client.models.list()]
    assert listed == ["embedder", "tiny", "gpt-4o-mini"]
    assert (await client.models.retrieve("tiny")).id == "tiny"


async def test_errors_are_the_clients_own_exceptions(
    client: openai.AsyncOpenAI, door: Door
) -> None:
    """# spec: T1"""
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="none", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "long " * 9000}]
        )
    (route,) = door.routes()
    assert route.live.breaker.failures == 0
    door.serve()
    with pytest.raises(openai.InternalServerError) as starting:
        await client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert starting.value.code == "model_starting"
    assert starting.value.status_code == 503


async def test_a_client_that_leaves_frees_the_engines_slot(
    client: openai.AsyncOpenAI, engine: str
) -> None:
    """# spec: T5"""
    stream = await client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=3000, stream=True
    )
    async for _ in stream:
        break
    await stream.close()
    async with asyncio.timeout(10), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://{engine}/slots") as response:
                if not any(slot["is_processing"] for slot in await response.json()):
                    return
            await asyncio.sleep(0.05)


async def test_a_killed_engine_ends_the_stream_with_an_error_the_client_raises(
    client: openai.AsyncOpenAI, door: Door, tmp_path: Path
) -> None:
    """# spec: R3, T5"""
    write(tmp_path / "tiny.gguf")
    process, address = start(tmp_path / "tiny.gguf")
    try:
        await loaded(address)
        door.serve(address)
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=3000, stream=True
        )
        for _ in range(3):
            await anext(stream)
        process.kill()
        with pytest.raises(openai.APIError, match="failed while answering"):
            [chunk async for chunk in stream]
    finally:
        process.kill()
        process.wait()
