"""The router's admin listener: health, metrics, and its own table. Never the client-facing port."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from schemas import codec
from schemas.api import EndpointRow, RouterTable
from schemas.catalog import Model
from schemas.documents import Endpoint
from services.router.endpoints import Live, Table
from services.router.idle import LastUsed
from services.router.pick import fresh
from services.runtime.admin import Readiness, admin_app

TABLE_PATH = "/api/v1/router"


def application(
    ready: Readiness, registry: CollectorRegistry, show: Callable[[], RouterTable]
) -> web.Application:
    """For `services.runtime.admin.listen`."""

    async def table(_request: web.Request) -> web.Response:
        return web.Response(body=codec.encode(show()), content_type="application/json")

    app = admin_app(lambda: True, ready, registry)
    app.router.add_get(TABLE_PATH, table)
    return app


def rows(table: Table, used: LastUsed, monotonic: float, wall: float) -> tuple[EndpointRow, ...]:
    """Every endpoint with what this router knows of it."""
    return tuple(_row(*each, used, monotonic, wall) for each in table.endpoints())


def _row(
    model: Model, endpoint: Endpoint, live: Live, used: LastUsed, monotonic: float, wall: float
) -> EndpointRow:
    figures = fresh(live.figures, monotonic)
    last = used.of(endpoint.replica)
    return EndpointRow(
        replica=endpoint.replica,
        model=model.name,
        incarnation=endpoint.incarnation,
        address=endpoint.address,
        node=endpoint.node,
        unrouted=endpoint.unrouted,
        last_choice=endpoint.last_choice,
        in_flight=live.in_flight,
        breaker=live.breaker.phase(monotonic),
        failures=live.breaker.failures,
        error=live.breaker.reason,
        others=_known(None if figures is None else figures.others),
        waiting=_known(None if figures is None else figures.waiting),
        kv_usage=_known(None if figures is None else figures.kv_usage),
        idle_seconds=-1.0 if last is None else max(0.0, wall - last),
    )


def _known(figure: float | None) -> float:
    return -1.0 if figure is None else figure
