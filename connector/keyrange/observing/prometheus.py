"""The metrics of queries for Prometheus, by its own client library (extra
`prometheus`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from keyrange.errors import invalid_options
from keyrange.observing.merged_listeners import MergedFigures
from keyrange.observing.model.metric_table import TABLE, Metric, MetricKind, prometheus_name
from keyrange.observing.model.query_metrics import Sample
from keyrange.text.packages import install_line

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

_PLACES: Final = MergedFigures()


class QueryCollector:
    """A collector of what `samples` says; a figure that is gone there is gone here."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def describe(self) -> Iterable[Family]:
        """Nothing: the registry then asks for no figures when this is registered."""
        return ()

    def collect(self) -> Iterable[Family]:
        found: dict[Metric, list[Sample]] = {}
        for sample in self._samples():
            found.setdefault(sample.metric, []).append(sample)
        for metric in TABLE:
            if metric in found:
                yield _family(metric, found[metric])


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make: Any = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = make(prometheus_name(metric), metric.help, labels=metric.labels)
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family


def register(samples: Callable[[], Iterable[Sample]], registry: Any) -> None:
    """Let a registry collect, once for all that are registered; True stands for the library's own.

    Raises INVALID_OPTIONS where the library is not installed.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        raise invalid_options(
            [f"prometheus needs prometheus-client: {install_line('prometheus')}"]
        ) from None
    place = REGISTRY if registry is True else registry
    _PLACES.add(place, samples, lambda merged: place.register(QueryCollector(merged)))


def serve(port: int, host: str, collector: Any = None) -> None:
    """Serve what a collector says over HTTP, in a thread; by default all of the library's own
    registry. Raises INVALID_OPTIONS where the library is not installed, or the port is taken."""
    try:
        from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
    except ImportError:
        raise invalid_options(
            [f"--metrics-port needs prometheus-client: {install_line('prometheus')}"]
        ) from None
    registry = REGISTRY
    if collector is not None:
        registry = CollectorRegistry()
        registry.register(collector)
    try:
        start_http_server(port, host, registry)
    except (OSError, OverflowError) as failure:
        text = f"--metrics-port: {host}:{port} cannot be served: {failure}"
        raise invalid_options([text]) from None
