"""The router's Prometheus names. Labels are bounded: models of the catalog, and `other` for the rest."""

from collections.abc import Callable, Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from schemas.ids import ModelName
from services.router.endpoints import Table
from services.router.source import Standing

Outcome = Literal["ok", "rejected", "refused", "failed", "broken", "cancelled"]
"""`rejected`: a 4xx; `refused`: nothing could take it; `failed`: no proper answer; `broken`: ended
after bytes had been sent; `cancelled`: the client left."""
OTHER = "other"
_FIRST_BYTE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """One set per process."""

    def __init__(self, registry: CollectorRegistry, table: Table) -> None:
        self._requests = Counter(
            "flotilla_router_requests",
            "Requests that have ended",
            ("model", "outcome"),
            registry=registry,
        )
        self._retries = Counter(
            "flotilla_router_retries", "Second attempts", ("model",), registry=registry
        )
        self._first_byte = Histogram(
            "flotilla_router_first_byte_seconds",
            "From the request to the first byte of its answer",
            ("model",),
            buckets=_FIRST_BYTE_BUCKETS,
            registry=registry,
        )
        registry.register(_TableCollector(table))
        self._registry = registry
        self._table = table
        self._labelled: set[ModelName] = set()

    def watch(self, standing: Callable[[], Standing]) -> None:
        """Show how the table's source stands, too."""
        self._registry.register(_StandingCollector(standing))

    def ended(self, model: ModelName | None, outcome: Outcome) -> None:
        """None: no model of the catalog."""
        self._requests.labels(self._label(model), outcome).inc()

    def retried(self, model: ModelName) -> None:
        """A second attempt begins."""
        self._retries.labels(self._label(model)).inc()

    def first_byte(self, model: ModelName, seconds: float) -> None:
        """An answer begins."""
        self._first_byte.labels(self._label(model)).observe(seconds)

    def tidy(self) -> None:
        """Series of models that are no more disappear."""
        for model in self._labelled - self._table.targets.keys():
            self._labelled.discard(model)
            for metric in (self._requests, self._retries, self._first_byte):
                metric.remove_by_labels({"model": model})

    def _label(self, model: ModelName | None) -> str:
        if model is None or model not in self._table.targets:
            return OTHER
        self._labelled.add(model)
        return model


class _TableCollector(Collector):
    """Read from the table when asked, so that nothing is counted twice."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def collect(self) -> Iterator[GaugeMetricFamily]:
        in_flight = GaugeMetricFamily(
            "flotilla_router_in_flight_requests", "Requests at engines", labels=["model"]
        )
        known = GaugeMetricFamily(
            "flotilla_router_endpoints", "Endpoints that may be chosen", labels=["model"]
        )
        for name, target in self._table.targets.items():
            routes = (*target.first, *target.last)
            in_flight.add_metric([name], sum(route.live.in_flight for route in routes))
            known.add_metric([name], len(routes))
        return iter((in_flight, known))


class _StandingCollector(Collector):
    def __init__(self, standing: Callable[[], Standing]) -> None:
        self._standing = standing

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = self._standing()
        figures = {
            "connected": ("1: a link to NATS stands", float(now.connected)),
            "nats_denials": ("Times that NATS denied something", now.denials),
            "beats_dropped": ("Beats and load figures not believed", now.beats_dropped),
            "log_damaged": ("1: the log is not the one followed before", float(bool(now.damage))),
            "name_in_use": (
                "1: another router runs under the same name",
                float(bool(now.namesakes)),
            ),
            "catalog_refused": ("1: a newer catalog is not in effect", float(bool(now.refused))),
            "catalog_revision": ("Of the catalog in effect; 0: not from the log", now.revision),
            "applied_sequence": ("LOG sequence applied", now.applied),
            "unreadable_documents": ("Documents that cannot be used", len(now.unreadable)),
        }
        for name, (meaning, value) in figures.items():
            yield GaugeMetricFamily(f"flotilla_router_{name}", meaning, value=value)
