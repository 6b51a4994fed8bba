"""The listener: which sources are keyrange's, in which form offsets come, what a report may do."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent

from keyrange.core.lag import QueryLag, read_source_lag
from keyrange.spark.lag import LagListener

QUERY_ID, RUN_ID = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
END = {"@keyrange": {"version": 1}, "t": {"0": 1, "1": 2}}
LATEST = {"t": {"0": 3, "1": 6}}
MIRROR = {"committed": 3, "refused": 0, "failed": 1, "lastError": ""}


def source(end: Any = END, latest: Any = LATEST) -> dict[str, Any]:
    return {
        "description": "d",
        "startOffset": "null",
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 3,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "metrics": {},
    }


def progress(*sources: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """As Spark Connect sends it, and as `progress.json` reads."""
    return {
        "id": QUERY_ID,
        "runId": RUN_ID,
        "name": name,
        "timestamp": "2024-01-01T00:00:00.000Z",
        "batchId": 7,
        "batchDuration": 1_500,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "s", "numOutputRows": -1, "metrics": {}},
        "observedMetrics": {},
        "numInputRows": 3,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


def reports(*sources: dict[str, Any]) -> list[QueryLag]:
    got: list[QueryLag] = []
    listener = LagListener(report=got.append)
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress(*sources)}))
    return got


def test_a_progress_as_spark_connect_hands_it_over() -> None:
    [report] = reports(source())
    assert (report.query_id, report.run_id, report.batch_id) == (QUERY_ID, RUN_ID, 7)
    [one] = report.sources
    assert one.lag is not None
    assert one.lag.metrics() == {
        "minOffsetsBehindLatest": 2,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 3.0,
        "totalOffsetsBehindLatest": 6,
    }


def test_a_progress_of_dicts() -> None:
    got: list[QueryLag] = []
    event = SimpleNamespace(progress=progress(source()))
    LagListener(report=got.append).onQueryProgress(event)
    assert [each.sources[0].lag for each in got] == [reports(source())[0].sources[0].lag]


@pytest.mark.parametrize(
    "end",
    ['{"logOffset":0}', "7", "not JSON", "null", None, {"t": {"0": 1}}, [1], '{"t":{"0":1}}'],
)
def test_a_source_of_somebody_else_is_left_alone(end: Any) -> None:
    assert read_source_lag(source(end, end)) is None
    assert reports(source(end, end)) == []
    assert len(reports(source(end, end), source())[0].sources) == 1


@pytest.mark.parametrize("unknown", [None, "null", "{}"])
def test_what_is_not_known_gives_no_figures(unknown: str | None) -> None:
    """No batch yet, or no look at the cluster yet: either side alone marks the source."""
    marked = {"@keyrange": {"version": 1}, **LATEST}
    for given in (source(END, unknown), source(unknown, marked)):
        read = read_source_lag(given)
        assert read is not None
        assert read.lag is None


def test_the_mirrors_counts_come_along() -> None:
    latest = {"@keyrange": {"metrics": {"mirror": MIRROR}}, **LATEST}
    assert reports(source(END, json.dumps(latest)))[0].sources[0].mirror == MIRROR
    for other in ({}, {"metrics": 1}, {"metrics": {"mirror": 1}}):
        [report] = reports(source(END, {"@keyrange": other, **LATEST}))
        assert report.sources[0].mirror == {}


def test_by_default_a_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="keyrange.spark.lag"):
        for name in ("orders", None):
            event = SimpleNamespace(progress=progress(source(), source(END, None), name=name))
            LagListener().onQueryProgress(event)
        LagListener().onQueryProgress(SimpleNamespace(progress=progress()))
    figures = (
        "batch 7: offsets behind latest: min 2, max 4, avg 3.0; offsets behind latest are not known"
    )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"query orders, {figures}"),
        ("INFO", f"query {QUERY_ID}, {figures}"),
    ]


def test_a_report_that_fails_is_logged_and_the_next_one_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[QueryLag] = []

    def report(lag: QueryLag) -> None:
        calls.append(lag)
        raise RuntimeError("full disk")

    listener = LagListener(report)
    for _ in range(2):
        listener.onQueryProgress(SimpleNamespace(progress=progress(source())))
    listener.onQueryProgress(SimpleNamespace(progress=progress(source({"@keyrange": {}, "t": 1}))))
    assert len(calls) == 2
    assert caplog.text.count("the lag of a query could not be reported") == 3
    assert caplog.text.count("RuntimeError: full disk") == 2
    assert "[INVALID_OFFSETS]" in caplog.text


def test_the_other_events_do_nothing() -> None:
    listener = LagListener(report=lambda lag: pytest.fail("no progress"))
    for method in (listener.onQueryStarted, listener.onQueryIdle, listener.onQueryTerminated):
        method(SimpleNamespace())
