"""Control's Prometheus names. Read from the loop when the page is asked for."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.control.loop import Loop


class ControlMetrics(Collector):
    """One scrape, one look."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        loop, tally = self._loop, self._loop.writing.tally
        yield _gauge("leading", "1: this control decides.", loop.leading)
        yield _gauge("log_damaged", "1: the log is not the one known.", loop.damage is not None)
        yield _counter("nats_denials", "Times NATS denied something.", loop.connection.denials)
        yield _counter("beats_dropped", "Beats not believed.", loop.ears.spoken.dropped)
        yield _gauge("log_sequence", "LOG sequence applied.", loop.state.sequence)
        yield _gauge("fence_sequence", "LOG sequence of the epoch.", loop.state.fence)
        yield _counter("turns", "Passes over the fleet.", tally.turns)
        yield _counter("turn_seconds", "Time spent deciding.", tally.turn_seconds)
        yield _counter("batches", "Batches in the log.", tally.batches)
        yield _counter("events", "Events in the log.", tally.events)
        yield _counter(
            "append_seconds", "Time until batches stood in the log.", tally.append_seconds
        )
        yield _counter("fenced", "Times that another took the lead.", tally.fenced)
        if tally.counts is not None:
            counts = tally.counts
            yield _gauge("replicas_wanted", "By the catalog.", counts.wanted)
            yield _gauge("replicas_counted", "To run, on nodes not lost.", counts.counted)
            yield _gauge("replicas_ready", "Serving, on nodes alive.", counts.ready)
            yield _gauge("models_unplaceable", "Without room.", counts.unplaceable_models)


def registry(loop: Loop) -> CollectorRegistry:
    """All of control's metrics."""
    made = CollectorRegistry()
    made.register(ControlMetrics(loop))
    return made


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"flotilla_control_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"flotilla_control_{name}", text, value=value)
