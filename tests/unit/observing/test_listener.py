"""The listener: lines, files, metrics, reports; several queries, restarts, and what goes wrong."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent

from keyrange.errors import InvalidError
from keyrange.individual_commits import last_batch_results
from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.observing.listener import ProgressListener
from keyrange.observing.model.query_progress import QueryProgress
from keyrange.observing.progress_file import read_last
from samples.progresses import FULL, OTHER_RUN, QUERY_ID, RUN_ID, ended, event, progress, source

BATCH = progress(7, source({"0": 1}, {"0": 3}))
OTHERS = progress(7, source({"0": 1}, {"0": 3}) | {"endOffset": 1, "latestOffset": 2})
LOGGER = "keyrange.observing.listener"
UNTOLD = "whose text may quote a record and is in Spark's own log alone"


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)


def test_a_batch_is_one_line_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    ProgressListener().onQueryProgress(event(BATCH))
    assert said(caplog) == [
        ("INFO", "batch 7: 3 records in 1.50 s (2/s), read lag 2, commit lag 2, query orders")
    ]
    fields = caplog.records[0].keyrange  # type: ignore[attr-defined]
    assert (fields["event"], fields["query"], fields["read_lag"]) == ("batch", "orders", 2)


def test_a_batch_that_this_process_committed_is_told_with_what_it_came_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[QueryProgress] = []
    listener = ProgressListener(report=got.append)
    last_batch_results.keep(QUERY_ID, 8, BatchResult(3, 1, 14, 0, 15))
    for batch_id in (8, 9):
        document = progress(batch_id, source({"0": 1}, {"0": 3}, commits={"pending": 37}))
        listener.onQueryProgress(event(document))
    assert [text.split(", ")[3:-1] for _, text in said(caplog)] == [
        ["1 failed", "15 pending"],
        ["37 pending before it"],
    ]
    pending = {"keyrange.pending_records": 37.0}
    assert pending.items() <= {each.metric.name: each.value for each in listener.samples()}.items()
    assert [each.result and each.result.pending for each in got] == [15, None]


def test_as_spark_connect_hands_it_over(tmp_path: Path) -> None:
    got: list[QueryProgress] = []
    listener = ProgressListener(report=got.append, progress_file=tmp_path / "p")
    whole = BATCH | {"eventTime": {}}
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": whole}))
    assert [(each.label, each.lag) for each in got] == [("orders", 2)]
    assert read_last(tmp_path / "p", 2) == [whole]


def test_other_queries_are_left_alone(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    listener = ProgressListener(progress_file=tmp_path / "p")
    listener.onQueryProgress(event(OTHERS))
    listener.onQueryTerminated(ended(exception="StreamingQueryException: ValueError: x"))
    assert said(caplog) == []
    assert listener.samples() == []
    assert not (tmp_path / "p").exists()


def test_two_queries_and_a_restart_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    listener = ProgressListener(log=False)
    listener.onQueryProgress(event(BATCH))
    listener.onQueryProgress(event(BATCH | {"name": "bills", "runId": OTHER_RUN}))
    listener.onQueryTerminated(ended())
    found = {
        (each.metric.name, each.labels[0]): each.value
        for each in listener.samples()
        if each.metric.name in ("keyrange.query.running", "keyrange.batches")
    }
    assert found == {
        ("keyrange.query.running", "orders"): 0,
        ("keyrange.batches", "orders"): 1,
        ("keyrange.query.running", "bills"): 1,
        ("keyrange.batches", "bills"): 1,
    }
    assert said(caplog) == [("INFO", "query orders has ended after batch 7")]


@pytest.mark.parametrize(
    ("exception", "error_class", "why"),
    [
        (
            "x\nkeyrange.errors.DataLossError: [INVALID_OFFSETS] odd. To mend it: wait.\nat y",
            "STREAM_FAILED",
            "[INVALID_OFFSETS] odd. To mend it: wait.",
        ),
        (
            "a.PySparkTypeError: [NOT_INT] s3cret in type `str`.",
            "STREAM_FAILED",
            f"STREAM_FAILED, PySparkTypeError, {UNTOLD}",
        ),
        ("ValueError: s3cret", "STREAM_FAILED", f"STREAM_FAILED, ValueError, {UNTOLD}"),
        ("ValueError: s3cret", None, f"ValueError, {UNTOLD}"),
        ("s3cret", "STREAM_FAILED", "STREAM_FAILED"),
        ("s3cret", None, "see what Spark says of it"),
    ],
)
def test_why_a_run_failed_quotes_no_record(
    caplog: pytest.LogCaptureFixture, exception: str, error_class: str | None, why: str
) -> None:
    listener = ProgressListener(log=False)
    listener.onQueryProgress(event(BATCH))
    listener.onQueryTerminated(ended(exception=exception, error_class=error_class))
    assert said(caplog) == [("ERROR", f"query orders has failed after batch 7: {why}")]


def test_a_run_that_failed_before_its_first_batch_is_told_where_it_is_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = "keyrange.errors.InvalidError: [INVALID_OPTIONS] x. To mend it: y."
    ProgressListener().onQueryTerminated(ended(exception=failure))
    assert said(caplog) == [
        ("ERROR", f"query {QUERY_ID} has failed: [INVALID_OPTIONS] x. To mend it: y.")
    ]


def failures(listener: ProgressListener) -> dict[str, float]:
    return {
        each.labels[0]: each.value
        for each in listener.samples()
        if each.metric.name == "keyrange.query.failures"
    }


def started(query_id: str, name: str | None) -> Any:
    return SimpleNamespace(id=query_id, runId=RUN_ID, name=name)


def test_runs_that_fail_before_their_first_batch_are_counted_where_the_query_is_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = ProgressListener(log=False)
    listener.onQueryStarted(started(QUERY_ID, "orders"))
    listener.onQueryProgress(event(BATCH))
    for number in range(3):
        listener.onQueryStarted(started(QUERY_ID, "orders"))
        listener.onQueryTerminated(ended(run_id=f"r{number}", exception="ValueError: x"))
    assert failures(listener) == {"orders": 3}
    assert said(caplog)[-1] == ("ERROR", f"query orders has failed: ValueError, {UNTOLD}")


@pytest.mark.parametrize(("name", "label"), [("orders", "orders"), (None, QUERY_ID)])
def test_a_query_that_never_did_a_batch_is_counted_where_its_failures_name_keyrange(
    name: str | None, label: str
) -> None:
    listener = ProgressListener(log=False)
    for number in range(2):
        listener.onQueryStarted(started(QUERY_ID, name))
        listener.onQueryTerminated(ended(f"r{number}", exception="keyrange.errors.X: [Y] z"))
    listener.onQueryTerminated(ended("another", exception="ValueError: x"))
    assert failures(listener) == {label: 2}


def test_queries_of_others_are_not_remembered_without_end() -> None:
    listener = ProgressListener(log=False)
    for number in range(1_500):
        listener.onQueryStarted(started(f"q{number}", None))
    assert len(listener._queries) == 1_000


def test_a_full_disk_stops_nothing_and_is_said_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    got: list[QueryProgress] = []
    directory = tmp_path / "gone"
    listener = ProgressListener(log=False, progress_file=directory / "p", report=got.append)
    for _ in range(3):
        listener.onQueryProgress(event(BATCH))
    assert len(got) == 3
    [(level, text)] = said(caplog)
    assert level == "WARNING"
    assert "could not be told" in text
    assert str(directory / "p") in text
    directory.mkdir()
    listener.onQueryProgress(event(BATCH))
    (directory / "p").unlink()
    directory.rmdir()
    listener.onQueryProgress(event(BATCH))
    assert len(said(caplog)) == 2, "it went well in between"


@pytest.mark.parametrize("document", [{}, {"sources": 1}, BATCH | {"batchId": "x"}, [], "no JSON"])
def test_what_cannot_be_read_is_said_once_and_stops_nothing(
    caplog: pytest.LogCaptureFixture, document: Any
) -> None:
    listener = ProgressListener()
    for _ in range(2):
        listener.onQueryProgress(SimpleNamespace(progress=document))
    assert [level for level, _ in said(caplog)] == ["WARNING"]
    listener.onQueryProgress(event(BATCH))
    assert said(caplog)[-1][0] == "INFO"


def test_a_report_that_fails_stops_nothing(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def report(progress: QueryProgress) -> None:
        raise RuntimeError("no")

    listener = ProgressListener(log=False, progress_file=tmp_path / "p", report=report)
    for _ in range(2):
        listener.onQueryProgress(event(BATCH))
    assert len(read_last(tmp_path / "p", 9)) == 2
    assert len(said(caplog)) == 1


def test_partitions_beyond_the_bound_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    listener = ProgressListener(log=False, partitions=1)
    many = progress(7, source({"0": 1, "1": 1}, {"0": 3, "1": 4}))
    for _ in range(2):
        listener.onQueryProgress(event(many))
    expected = "the lag of 1 of 2 partitions of query orders has a metric of its own"
    assert said(caplog) == [("WARNING", expected)]


def test_who_waits_for_the_end_is_told() -> None:
    listener = ProgressListener(log=False)
    assert not listener.wait_ended(RUN_ID, 0)
    later = threading.Timer(0.05, listener.onQueryTerminated, [ended()])
    later.start()
    # Not woken up, it would sleep for longer than a test may take.
    assert listener.wait_ended(RUN_ID, 3_600)
    later.join()


def test_metrics_go_where_they_are_asked_for() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    listener = ProgressListener(log=False, prometheus=registry, partitions=5)
    listener.onQueryProgress(event(progress(7, source({"0": 1}, {"0": 3}, **FULL))))
    text = client.generate_latest(registry).decode()
    assert 'keyrange_pending_records{query="orders",source="0"} 37.0' in text


def test_a_wrong_file_is_refused_at_once() -> None:
    with pytest.raises(InvalidError):
        ProgressListener(progress_file="s3://lake/p")


def test_an_idle_query_is_left_alone() -> None:
    listener = ProgressListener(report=lambda _: pytest.fail("no progress"))
    listener.onQueryIdle(SimpleNamespace())


def test_a_start_that_cannot_be_read_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ProgressListener().onQueryStarted(SimpleNamespace())
    assert [level for level, _ in said(caplog)] == ["WARNING"]
