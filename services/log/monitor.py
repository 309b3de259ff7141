"""What nats-server says of itself over its monitoring port, which is HTTP.

By hand: no HTTP library is loaded before control's first decision.
"""

import asyncio

from msgspec import DecodeError, Struct

from schemas import codec

ANSWER_SECONDS = 2.0


class _Config(Struct, frozen=True):
    sync_always: bool = False


class _JetStream(Struct, frozen=True):
    config: _Config


class _Page(Struct, frozen=True):
    jetstream: _JetStream
    feature_flags: dict[str, bool] = {}


class SetUp(Struct, frozen=True):
    """How a server is set up."""

    sync_always: bool
    """Every acknowledged write is on disk."""
    snapshot_sources: bool
    """A new leader of a sourced stream knows how far it was fed."""


async def set_up(host: str, port: int) -> SetUp | None:
    """None: it cannot be read."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            page = codec.decode(await _get(host, port, "/varz"), _Page)
    except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, DecodeError):
        return None
    flag = page.feature_flags.get("js_snapshot_sources", False)
    return SetUp(page.jetstream.config.sync_always, flag)


async def _get(host: str, port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        return await reader.read(-1)
    finally:
        writer.close()
