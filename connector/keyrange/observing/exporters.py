"""The metrics of queries for Prometheus, by its own client library (extra `prometheus`), and for
OpenTelemetry, through its API alone (extra `opentelemetry`): where they go is the business of the
SDK that the user has set up.

All instruments of OpenTelemetry are observable. So a figure that ended with its query is no longer
reported, and a reader that asks seldom costs nothing in between.

A cell of a notebook that is run again brings a second listener of the same queries: each figure is
told once all the same, by the listener that came last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from keyrange.errors import error, invalid_options
from keyrange.observing.model.metric_table import TABLE, Metric, MetricKind, prometheus_name
from keyrange.observing.model.query_metrics import Sample
from keyrange.text.packages import install_line

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

Samples = Callable[[], Iterable[Sample]]

_LOCK: Final = threading.Lock()
# What goes to which registry or provider.
_PLACES: Final[WeakKeyDictionary[Any, list[Samples]]] = WeakKeyDictionary()


def to_prometheus(samples: Samples, registry: Any) -> None:
    """Let a registry collect, once for all that are registered; True stands for the library's own.

    Raises INVALID_OPTIONS where the library is not installed.
    """
    with _needing("prometheus needs prometheus-client", install_line("prometheus")):
        from prometheus_client import REGISTRY
    place = REGISTRY if registry is True else registry
    _add(place, samples, lambda merged: place.register(QueryCollector(merged)))


def to_opentelemetry(samples: Samples, provider: Any) -> None:
    """Let a MeterProvider observe, once for all that are registered; True stands for the global
    one.

    Raises INVALID_OPTIONS where the API is not installed.
    """
    with _needing("opentelemetry needs opentelemetry-api", install_line("opentelemetry")):
        from opentelemetry import metrics
    place = metrics.get_meter_provider() if provider is True else provider
    _add(place, samples, lambda merged: _make_instruments(place, merged))


@contextmanager
def _needing(package: str, line: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise invalid_options(f"{package}: {line}") from None


def _add(place: Any, samples: Samples, begin: Callable[[Samples], None]) -> None:
    """Take in another one; `begin` is called with all of a place where it is the first there, and
    these may be asked from any thread."""
    with _LOCK:
        known = _PLACES.get(place, [])
        known.append(samples)
        if len(known) == 1:
            begin(lambda: _each_once(known))
            _PLACES[place] = known


def _each_once(told: Iterable[Samples]) -> list[Sample]:
    """What all say, each figure once."""
    found = {(each.metric, each.labels): each for samples in told for each in samples()}
    return list(found.values())


@dataclass(frozen=True)
class QueryCollector:
    """A collector of what `samples` says; a figure that is gone there is gone here."""

    samples: Samples

    def describe(self) -> Iterable[Family]:
        """Nothing: the registry then asks for no figures when this is registered."""
        return ()

    def collect(self) -> Iterable[Family]:
        found: dict[Metric, list[Sample]] = {}
        for sample in self.samples():
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


def serve(port: int, host: str, collector: Any = None) -> None:
    """Serve what a collector says over HTTP, in a thread; by default all of the library's own
    registry. Raises INVALID_OPTIONS where the library is not installed, or the port is taken."""
    with _needing("--metrics-port needs prometheus-client", install_line("prometheus")):
        from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
    registry = REGISTRY
    if collector is not None:
        registry = CollectorRegistry()
        registry.register(collector)
    try:
        start_http_server(port, host, registry)
    except (OSError, OverflowError) as failure:
        text = f"--metrics-port: {host}:{port} cannot be served: {failure}"
        raise error("ADDRESS_NOT_SERVED", text) from None


def _make_instruments(provider: Any, samples: Samples) -> None:
    """Of several instruments of one name the SDK would ask the first one only."""
    meter = provider.get_meter("keyrange")
    for metric in TABLE:
        counts = metric.kind is MetricKind.COUNTER
        create = meter.create_observable_counter if counts else meter.create_observable_gauge
        create(
            metric.name,
            callbacks=[_observing(metric, samples)],
            unit=metric.unit,
            description=metric.help,
        )


def _observing(metric: Metric, samples: Samples) -> Callable[[Any], Any]:
    from opentelemetry.metrics import Observation

    names = [f"keyrange.{name}" for name in metric.labels]

    def observe(options: Any) -> list[Any]:  # noqa: ARG001  the form that the API calls
        return [
            Observation(sample.value, dict(zip(names, sample.labels, strict=True)))
            for sample in samples()
            if sample.metric == metric
        ]

    return observe
