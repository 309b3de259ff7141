"""Asks an engine over HTTP: does it live, does it serve the right model, how busy is it."""

from typing import Literal

import aiohttp
import msgspec

from schemas import codec
from schemas.beats import EngineLoad
from schemas.documents import LaunchSpec
from services.agent.engines.adapter import Adapter, Health
from services.fleet import engine_metrics
from services.fleet.addresses import Address

LOOK_TIMEOUT = aiohttp.ClientTimeout(total=5)
ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=120)
"""The first token of a large model may take long."""
LARGEST_PAGE_BYTES = 4 * 1024 * 1024

_UNREACHED = (aiohttp.ClientError, TimeoutError, OSError)


class _Named(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Named, ...]


def session() -> aiohttp.ClientSession:
    """A client that keeps no connection: an idle one would look like a request under way."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=LOOK_TIMEOUT)


def base_url(spec: LaunchSpec) -> str:
    """Where the engine is asked from its own node."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(spec.host, spec.host)  # noqa: S104
    return f"http://{Address(host, spec.port).text}"


async def health(
    http: aiohttp.ClientSession, spec: LaunchSpec, adapter: Adapter
) -> Health | Literal["refused"]:
    """What the health page says. `refused`: nobody listens; a time-out is unclear, for busy is not dead."""
    try:
        async with http.get(base_url(spec) + adapter.health_path) as answer:
            return adapter.health.get(answer.status, "unclear")
    except aiohttp.ClientConnectorError:
        return "refused"
    except _UNREACHED:
        return "unclear"


async def fault(http: aiohttp.ClientSession, spec: LaunchSpec) -> str:
    """Why it is not ready: it must name the model and answer one real request. Empty: it is."""
    try:
        async with http.get(f"{base_url(spec)}/v1/models") as answer:
            if answer.status != 200:
                return f"/v1/models answers {answer.status}"
            names = [model.id for model in codec.decode(await answer.read(), _Models).data]
        if spec.served_name not in names:
            return f"it serves {', '.join(names)}, not {spec.served_name}"
        return await _real_request(http, spec)
    except msgspec.DecodeError as error:
        return f"/v1/models: {error}"
    except _UNREACHED as error:
        return f"no answer: {error or type(error).__name__}"


async def _real_request(http: aiohttp.ClientSession, spec: LaunchSpec) -> str:
    body: dict[str, object] = {"model": spec.served_name}
    if spec.task == "embed":
        path, body = "/v1/embeddings", body | {"input": "a"}
    else:
        path, body = "/v1/completions", body | {"prompt": "a", "max_tokens": 1}
    async with http.post(base_url(spec) + path, json=body, timeout=ANSWER_TIMEOUT) as answer:
        if answer.status == 200:
            await answer.read()
            return ""
        said = (await answer.content.read(300)).decode(errors="replace")
        return f"{path} answers {answer.status}: {said}"


async def scrape(
    http: aiohttp.ClientSession, spec: LaunchSpec, adapter: Adapter
) -> EngineLoad | None:
    """Its figures, all unknown where it has no metrics page; None: it gave no answer."""
    try:
        async with http.get(base_url(spec) + adapter.metrics_path) as answer:
            if answer.status != 200:
                return EngineLoad()
            page = await answer.content.read(LARGEST_PAGE_BYTES)
    except _UNREACHED:
        return None
    return engine_metrics.parse(page.decode(errors="replace"), spec.kind, spec.metrics)
