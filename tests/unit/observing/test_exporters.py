"""The figures of queries, as the clients of Prometheus and OpenTelemetry hand them on."""

from __future__ import annotations

import builtins
import gc
import urllib.request
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from keyrange.embedded.process import free_ports
from keyrange.errors import InvalidError
from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.observing.exporters import serve, to_opentelemetry, to_prometheus
from keyrange.observing.model.metric_table import TABLE, MetricKind
from keyrange.observing.model.query_metrics import QueryMetrics, Sample
from keyrange.observing.model.query_progress import read_query_progress, with_result
from keyrange.storage.model.merged_rows import Merged
from samples.progresses import FULL, KEPT, RUN_ID, progress, source

WROTE = {"keyrange": KEPT["keyrange"] | {"records": 3}}


def metrics(name: str = "orders") -> QueryMetrics:
    made = QueryMetrics(partitions_max=1)
    told = source({"0": 1}, {"0": 3}, **FULL)
    found = read_query_progress(progress(7, told, name=name, observed=WROTE))
    assert found is not None
    told = with_result(found, BatchResult(1, 2, 0, 1, 37))
    made.observe(replace(told, merged=Merged(1, 2, 3)), 100.0)
    return made


def samples(of: QueryMetrics) -> Callable[[], list[Sample]]:
    return lambda: list(of.samples())


def prometheus_lines(of: QueryMetrics) -> list[str]:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    to_prometheus(samples(of), registry)
    lines: list[str] = client.generate_latest(registry).decode().splitlines()
    return lines


def test_prometheus_has_each_metric_by_its_kind() -> None:
    lines = prometheus_lines(metrics())
    assert 'keyrange_records_total{query="orders"} 3.0' in lines
    assert 'keyrange_written_bytes_total{query="orders"} 4.2e+06' in lines
    assert 'keyrange_busy_time_seconds_total{query="orders"} 1.5' in lines
    assert 'keyrange_lag{query="orders",source="0"} 2.0' in lines
    assert (
        'keyrange_partition_lag{partition="0",query="orders",source="0",topic="t"} 2.0' in lines
        or 'keyrange_partition_lag{query="orders",source="0",topic="t",partition="0"} 2.0' in lines
    )
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(TABLE)
    counters = {name for name, kind in types if kind == "counter"}
    assert all(name.endswith("_total") for name in counters)
    assert len(counters) == sum(metric.kind is MetricKind.COUNTER for metric in TABLE)


def test_prometheus_is_served_at_the_address_that_is_named() -> None:
    pytest.importorskip("prometheus_client")
    [port] = free_ports(1)
    serve(port, "127.0.0.1")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        assert b"# TYPE" in answer.read()
    with pytest.raises(InvalidError, match="in use"):
        serve(port, "127.0.0.1")


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_is_none_is_told(port: int) -> None:
    with pytest.raises(
        InvalidError, match=rf"ADDRESS_NOT_SERVED.*--metrics-port: 127.0.0.1:{port} "
    ):
        serve(port, "127.0.0.1")


def test_prometheus_forgets_the_gauges_of_what_ended() -> None:
    ended = metrics()
    ended.end("orders", RUN_ID, failed=True)
    lines = prometheus_lines(ended)
    assert 'keyrange_query_failures_total{query="orders"} 1.0' in lines
    assert not [line for line in lines if line.startswith("keyrange_lag")]


def test_labels_are_escaped() -> None:
    lines = prometheus_lines(metrics('a"b\n'))
    assert r'keyrange_records_total{query="a\"b\n"} 3.0' in lines


def read_otel(reader: Any) -> dict[str, tuple[Any, list[tuple[dict[str, str], float]]]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    assert scope.scope.name == "keyrange"
    return {
        metric.name: (
            metric,
            [(dict(point.attributes), point.value) for point in metric.data.data_points],
        )
        for metric in scope.metrics
    }


def test_opentelemetry_has_each_metric_by_its_kind_and_unit() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    of = metrics()
    to_opentelemetry(samples(of), sdk.MeterProvider([reader]))
    found = read_otel(reader)
    assert found.keys() == {metric.name for metric in TABLE}
    for metric in TABLE:
        told, _ = found[metric.name]
        assert (told.unit, told.description) == (metric.unit, metric.help)
        is_sum = isinstance(told.data, export.Sum)
        assert is_sum is (metric.kind is MetricKind.COUNTER)
        assert not is_sum or told.data.is_monotonic
    by_source = {"keyrange.query": "orders", "keyrange.source": "0"}
    assert found["keyrange.records"][1] == [({"keyrange.query": "orders"}, 3.0)]
    assert found["keyrange.lag"][1] == [(by_source, 2)]
    of.end("orders", RUN_ID, failed=True)
    assert "keyrange.lag" not in read_otel(reader)
    assert read_otel(reader)["keyrange.query.failures"][1][0][1] == 1


@pytest.mark.parametrize(
    ("register", "library", "extra"),
    [
        (to_prometheus, "prometheus_client", "pip install '.[prometheus]'"),
        (to_opentelemetry, "opentelemetry", "pip install '.[opentelemetry]'"),
    ],
)
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, register: Any, library: str, extra: str
) -> None:
    usual = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidError) as refused:
        register(samples(metrics()), True)
    assert extra in str(refused.value)


def test_two_listeners_of_a_query_are_one_to_prometheus() -> None:
    """As where a cell of a notebook is run again."""
    client = pytest.importorskip("prometheus_client")
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    exposition = pytest.importorskip("prometheus_client.openmetrics.exposition")
    registry = client.CollectorRegistry()
    first, second, other = metrics(), metrics(), metrics("prices")
    first.end("orders", RUN_ID, failed=True)
    for each in (first, second, other):
        to_prometheus(samples(each), registry)
    text = exposition.generate_latest(registry).decode()
    # It refuses a family or a figure that is told twice.
    families = {each.name: each for each in parser.text_string_to_metric_families(text)}
    told = {each.labels["query"]: each.value for each in families["keyrange_query_running"].samples}
    assert told == {"orders": 1, "prices": 1}


def test_a_later_listener_is_heard_by_opentelemetry() -> None:
    """As where a cell of a notebook is run again, and only its listener is told of batches."""
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    to_opentelemetry(samples(QueryMetrics()), provider)
    to_opentelemetry(samples(metrics()), provider)
    assert read_otel(reader)["keyrange.records"][1] == [({"keyrange.query": "orders"}, 3.0)]


def test_providers_that_are_gone_are_forgotten() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    provider = sdk.MeterProvider()
    to_opentelemetry(samples(metrics()), provider)
    provider.shutdown()
    gone = weakref.ref(provider)
    del provider
    gc.collect()
    assert gone() is None


def test_registries_that_are_gone_are_forgotten() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    to_prometheus(samples(metrics()), registry)
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None
