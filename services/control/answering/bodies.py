"""Bodies of requests, of a bounded size. Shell."""

from aiohttp import web

LARGEST_BODY = 4 << 20
"""A catalog in YAML, comments included."""


async def read_body(request: web.Request) -> bytes | None:
    """None: too large, and not read to its end."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > LARGEST_BODY:
            return None
    return bytes(body)
