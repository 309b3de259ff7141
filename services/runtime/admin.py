"""The admin listener: health, metrics, and whatever a program adds. Never the client-facing port.

`/livez`: the event loop turns and the program says it lives. `/readyz`: it can do its work, with what
hampers it, or why not. Both and `/metrics` need no token and hold no secret.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Readiness = Callable[[], tuple[bool, str]]


def admin_app(
    live: Callable[[], bool], ready: Readiness, registry: CollectorRegistry
) -> web.Application:
    """An application with the three pages; callers add their own routes before `listen`."""

    async def livez(_request: web.Request) -> web.Response:
        good = live()
        return _verdict(good, "" if good else "the event loop is stuck")

    async def readyz(_request: web.Request) -> web.Response:
        return _verdict(*ready())

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


def _verdict(good: bool, reason: str) -> web.Response:
    if good:
        return web.Response(text=f"ok, but {reason}\n" if reason else "ok\n")
    return web.Response(text=f"{reason}\n", status=503)


LONGEST_LINE = 64 * 1024
"""Bytes of a request's first line: what is too long for its route is refused in words."""


async def listen(app: web.Application, address: str) -> web.AppRunner:
    """Serve `app` on `host:port`; the caller calls `cleanup()` on what comes back.

    Raises OSError, naming the address, when it is taken.
    """
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(app, access_log=None, handle_signals=False, max_line_size=LONGEST_LINE)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
