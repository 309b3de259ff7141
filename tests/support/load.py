"""Clients that stream without pause, and an honest account of what came of each request."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.support.waiting import eventually


@dataclass(frozen=True)
class Outcome:
    """What one request came to."""

    kind: str
    """`ok`, `refused` (no stream: another status, or no connection), `broken` (an error event ended
    the stream), `cut` (it ended without [DONE] and without a word)."""
    detail: str = ""


@dataclass
class Load:
    """A running load. No retries of any kind: the first answer is the answer."""

    base_url: str
    model: str
    max_tokens: int = 24
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    streaming: int = 0
    """Streams now open that have received bytes."""

    def count(self, kind: str) -> int:
        return sum(outcome.kind == kind for outcome in self.outcomes)

    def failures(self) -> Counter[str]:
        """Everything that is not ok, by kind and detail."""
        return Counter(f"{o.kind}: {o.detail}" for o in self.outcomes if o.kind != "ok")

    async def request(
        self, session: aiohttp.ClientSession, max_tokens: int | None = None
    ) -> Outcome:
        """One streamed chat completion, read to its end."""
        body = {
            "model": self.model,
            "stream": True,
            "max_tokens": max_tokens or self.max_tokens,
            "messages": [{"role": "user", "content": "hello"}],
        }
        try:
            async with session.post(f"{self.base_url}/chat/completions", json=body) as response:
                if response.status != 200:
                    return Outcome("refused", f"{response.status} {await response.text()}"[:300])
                return await self._read(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Outcome("refused", f"{type(error).__name__}: {error}")

    async def _read(self, response: aiohttp.ClientResponse) -> Outcome:
        counted = False
        try:
            async for line in response.content:
                if not counted:
                    counted, self.streaming = True, self.streaming + 1
                if line.startswith(b"data: [DONE]"):
                    return Outcome("ok")
                if line.startswith(b"data: ") and "error" in json.loads(line[6:]):
                    return Outcome("broken", line.decode()[:300])
        except aiohttp.ClientError as error:
            return Outcome("cut", f"{type(error).__name__}: {error}")
        finally:
            self.streaming -= counted
        return Outcome("cut", "ended without [DONE]")

    async def client(self, stop: asyncio.Event) -> None:
        """One client: the next request starts when the last one ends."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while not stop.is_set():
                self.outcomes.append(await self.request(session))

    async def at_least(self, requests: int) -> None:
        """Wait until so many requests have ended."""

        async def enough() -> bool:
            return len(self.outcomes) >= requests

        await eventually(enough, f"{requests} requests", 120, 0.02)

    async def more(self, requests: int) -> None:
        """Wait until so many more requests have ended."""
        await self.at_least(len(self.outcomes) + requests)


@asynccontextmanager
async def streaming(
    base_url: str, model: str, clients: int = 4, max_tokens: int = 24
) -> AsyncGenerator[Load]:
    """`clients` streams without pause until the block ends; the last ones run to their end."""
    load, stop = Load(base_url, model, max_tokens), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(load.client(stop))
        try:
            yield load
        finally:
            stop.set()
