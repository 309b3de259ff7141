"""The agent's Prometheus names."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.documents import ShardPhase
from services.agent.shard import Life


class Metrics(Collector):
    """Read from the shards when asked."""

    def __init__(
        self,
        lives: Callable[[], Iterable[Life]],
        damaged: Callable[[], bool],
        denials: Callable[[], int],
    ) -> None:
        self.registry = CollectorRegistry()
        self._lives = lives
        self._damaged = damaged
        self._denials = denials
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """One sample a phase, so that a phase without shards is 0 and not absent."""
        lives = list(self._lives())
        counts = Counter(life.phase for life in lives)
        shards = GaugeMetricFamily("flotilla_agent_shards", "Shards by phase", labels=["phase"])
        for phase in get_args(ShardPhase):
            shards.add_metric([phase], counts[phase])
        yield shards
        yield GaugeMetricFamily(
            "flotilla_agent_failures",
            "Failures in a row, over all shards",
            value=sum(life.failures for life in lives),
        )
        yield GaugeMetricFamily(
            "flotilla_agent_log_damaged",
            "1: the log is not the one followed before",
            value=float(self._damaged()),
        )
        yield CounterMetricFamily(
            "flotilla_agent_nats_denials",
            "Times that NATS denied something",
            value=float(self._denials()),
        )
