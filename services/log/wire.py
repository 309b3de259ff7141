"""A bare link to NATS: its greeting and its door, then bytes. For who reads too much for a client.

It is let in like `services.log.link`, by the same Door: the same user, the same TLS or none, and
nothing is said to a server without TLS where TLS is wanted.

How it fails: nobody answers, or nobody is let in: Unavailable, which says why. A link that is lost
later reads as empty, or raises OSError.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct

from schemas import codec
from services.log.door import Door, Shut
from services.log.message import Unavailable

CONNECT_SECONDS = 2.0
"""For one server, from the first packet to its PONG."""
BUFFER_BYTES = 4 << 20
"""Half of it may lie unread before the server is made to wait."""
DEFAULT_PORT = 4222

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Info(Struct):
    """Of the server's greeting, what is used here."""

    tls_required: bool = False


@asynccontextmanager
async def opened(door: Door, name: str, inbox: str) -> AsyncGenerator[Wire]:
    """A link with one subscription, 1, to `inbox`. The first server that answers is taken."""
    reader, writer = await _first(door)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            writer.write(_connect(door, name) + f"SUB {inbox} 1\r\nPING\r\n".encode())
            while (line := (await reader.readline()).strip()) != b"PONG":
                if not line or line.startswith(b"-ERR"):
                    raise Unavailable(f"NATS does not let {name} in: {line.decode()}")
        yield reader, writer
    except TimeoutError:
        raise Unavailable(f"NATS does not answer within {CONNECT_SECONDS:g} s") from None
    finally:
        writer.close()


async def _first(door: Door) -> Wire:
    reasons: list[str] = []
    for host, port in _servers(door.url):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await _greeted(door, host, port)
        except (OSError, DecodeError, Shut, Unavailable) as error:  # TimeoutError is an OSError.
            reasons.append(f"{host}:{port}: {error or 'no answer'}")
    raise Unavailable("; ".join(reasons))


def _servers(urls: str) -> Iterator[tuple[str, int]]:
    for url in urls.split(","):
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        yield parts.hostname or "", parts.port or DEFAULT_PORT


async def _greeted(door: Door, host: str, port: int) -> Wire:
    reader, writer = await asyncio.open_connection(host, port, limit=BUFFER_BYTES // 2)
    try:
        greeting = await reader.readline()
        info = codec.decode(greeting.removeprefix(b"INFO "), _Info)
        if (context := _context(door, info)) is not None:
            await writer.start_tls(context, server_hostname=host)
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _context(door: Door, info: _Info) -> ssl.SSLContext | None:
    """None: neither side wants TLS."""
    if door.secure and not info.tls_required:
        raise Unavailable("the server offers no TLS, and nothing is said to it without")
    return door.context() or ssl.create_default_context() if info.tls_required else None


def _connect(door: Door, name: str) -> bytes:
    options = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "lang": "python",
        "version": "0",
        "protocol": 1,
        "name": name,
    }
    if (password := door.password()) is not None:
        options |= {"user": door.user, "pass": password}
    return b"CONNECT " + codec.encode(options) + b"\r\n"
