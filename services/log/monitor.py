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


async def sync_always(host: str, port: int) -> bool | None:
    """Whether every acknowledged write is on disk. None: it cannot be read."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            page = codec.decode(await _get(host, port, "/varz"), _Page)
    except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, DecodeError):
        return None
    return page.jetstream.config.sync_always


async def _get(host: str, port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        return await reader.read(-1)
    finally:
        writer.close()
