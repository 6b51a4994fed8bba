"""The guide to watching: its table is the code's, and its Python runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

from keyrange.observing.model.metric_table import TABLE, MetricKind, prometheus_name
from keyrange.observing.model.query_progress import read_query_progress
from samples.progresses import progress, source

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "connector" / "guides" / "observing.md"
RULES = ROOT / "conf" / "prometheus-rules.yaml"
BEGIN, END = "<!-- metrics: begin -->\n", "\n<!-- metrics: end -->"


def table_of_metrics() -> str:
    rows = [
        "| OpenTelemetry | unit | Prometheus | labels | what it is | in the progress |",
        "|---|---|---|---|---|---|",
    ]
    for each in TABLE:
        name = prometheus_name(each) + ("_total" if each.kind is MetricKind.COUNTER else "")
        where = f"`{each.origin}`" if each.origin else ""
        labels = ", ".join(each.labels)
        rows.append(
            f"| `{each.name}` | {each.unit} | `{name}` | {labels} | {each.help} | {where} |"
        )
    return "\n".join(rows)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    """To write it anew: what `table_of_metrics` returns, between the marks."""
    text = GUIDE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table_of_metrics()


def test_rules_name_metrics_that_there_are() -> None:
    known = {prometheus_name(metric) for metric in TABLE}
    named = set(re.findall(r"\bkeyrange_[a-z_]+", GUIDE.read_text()))
    assert named
    assert {name.removesuffix("_total") for name in named} <= known


def test_a_rule_sees_a_query_that_hangs_and_has_no_limit() -> None:
    """Its last batch read to the ends as they were then, so its lag stays 0."""
    document = progress(7, source({"0": 3}, {"0": 3}))
    found = read_query_progress(document)
    assert found is not None
    assert found.lag == 0
    rules = re.findall(r"^ +expr: (time\(\) - keyrange_last_batch.*)$", RULES.read_text(), re.M)
    assert [rule for rule in rules if "keyrange_lag" not in rule]


def blocks() -> Iterator[str]:
    yield from re.findall(r"^```python[^\n]*\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)


@pytest.fixture
def _quiet_logging() -> Iterator[None]:
    """What `configure` changes is put back."""
    names = (None, "py4j", "py4j.clientserver")
    root, *_ = loggers = [logging.getLogger(name) for name in names]
    handlers, levels = root.handlers[:], [each.level for each in loggers]
    yield
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("_quiet_logging")
@pytest.mark.parametrize("text", list(blocks()), ids=lambda text: str(text.count("\n")))
def test_python_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("prometheus_client")
    monkeypatch.setattr(client, "start_http_server", lambda port, address: None)
    monkeypatch.setattr(client, "REGISTRY", client.CollectorRegistry())
    if "opentelemetry" in text:
        _without_exporting(monkeypatch)
    added: list[Any] = []
    streams = SimpleNamespace(addListener=added.append)
    names: dict[str, Any] = {"spark": SimpleNamespace(streams=streams)}
    exec(compile(text.replace("/lake/", f"{tmp_path}/"), str(GUIDE), "exec"), names)  # noqa: S102
    assert all(isinstance(each, StreamingQueryListener) for each in added)
    assert added or "logs.configure" in text


def _without_exporting(monkeypatch: pytest.MonkeyPatch) -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    from opentelemetry import metrics

    reader = export.InMemoryMetricReader()
    monkeypatch.setattr(export, "PeriodicExportingMetricReader", lambda exporter: reader)
    made: list[Any] = []
    monkeypatch.setattr(metrics, "set_meter_provider", made.append)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made[0])
