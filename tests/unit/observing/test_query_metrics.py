"""The metrics: what is counted, over restarts, ends and several queries, and how names are made."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.observing.model.metric_table import TABLE, prometheus_name
from keyrange.observing.model.query_metrics import QueryMetrics
from keyrange.observing.model.query_progress import read_query_progress, with_result
from keyrange.storage.model.merged_rows import Merged
from samples.progresses import FULL, KEPT, OTHER_RUN, RUN_ID, progress, source


def figures(metrics: QueryMetrics) -> dict[str, float]:
    """Each figure by its name and labels."""
    return {
        " ".join([sample.metric.name.removeprefix("keyrange."), *sample.labels]): sample.value
        for sample in metrics.samples()
    }


def observe(metrics: QueryMetrics, batch_id: int, *, at: float = 100.0, **given: Any) -> None:
    parts, result = given.pop("parts", {}), given.pop("result", None)
    end, latest = given.pop("end", {"0": 1, "1": 2}), given.pop("latest", {"0": 3, "1": 6})
    document = progress(batch_id, source(end, latest, **parts), **given)
    found = read_query_progress(document)
    assert found is not None
    if result is not None:
        found = replace(with_result(found, result), merged=Merged(4, 5, 6))
    metrics.observe(found, at)


def test_a_plain_batch() -> None:
    metrics = QueryMetrics()
    observe(metrics, 7)
    assert figures(metrics) == {
        "query.running orders": 1,
        "query.failures orders": 0,
        "batches orders": 1,
        "records orders": 3,
        "busy.time orders": 1.5,
        "last_batch.number orders": 7,
        "last_batch.records orders": 3,
        "last_batch.duration orders": 1.5,
        "last_batch.timestamp orders": 100.0,
        "lag orders 0": 6,
        "max_lag orders 0": 4,
        "commit_lag orders 0": 6,
    }


def test_all_parts_have_figures_and_every_row_of_the_table_is_used() -> None:
    metrics = QueryMetrics(partitions_max=1)
    observe(metrics, 6, result=BatchResult(9, 0, 0, 0, 0))
    # A rate of what is there from the first batch on has its first rise.
    assert (figures(metrics)["failed.records orders"], figures(metrics)["dead.records orders"]) == (
        0,
        0,
    )
    observe(metrics, 7, parts=FULL, observed=KEPT, result=BatchResult(90, 5, 2, 3, 37))
    found = figures(metrics)
    assert found["last_batch.records orders"] == 100_000
    assert (found["failed.records orders"], found["dead.records orders"]) == (5, 3)
    merged = [found[f"merged.{name} orders"] for name in ("updated", "inserted", "deleted")]
    # As of all: the second batch adds to the first one.
    assert merged == [8, 10, 12]
    written = [found[f"written.{name} orders"] for name in ("rows", "files", "bytes")]
    assert written == [99_000, 2, 4_200_000]
    changed = [found[f"state.{name} orders"] for name in ("changed", "restored.time")]
    assert (changed, found["state.bytes orders 0"]) == ([300, 0.25], 9_000)
    assert {sample.metric for sample in metrics.samples()} == set(TABLE)
    assert found["pending_records orders 0"] == 37
    assert (found["lag orders 0"], found["commit_lag orders 0"]) == (6, 7)
    assert found["volumes.full.time orders 0"] == 90
    assert found["fallback orders 0"] == 1
    assert found["read.bytes orders 0"] == 4_000_000
    assert found["portions.foreign orders 0"] == 1
    assert found["partition.lag orders 0 t 0"] == 2
    assert "partition.lag orders 0 t 1" not in found


def test_lost_offsets_are_counted_by_partition_and_batch() -> None:
    metrics = QueryMetrics(partitions_max=1)
    for batch_id in (7, 7, 8):
        observe(metrics, batch_id, parts=FULL)
    assert figures(metrics)["partition.lost orders 0 t 0"] == 8
    other = FULL["losses"] | {"found": [{**FULL["losses"]["found"][0], "partition": 1}]}
    observe(metrics, 9, parts=FULL | {"losses": other})
    assert "partition.lost orders 0 t 1" not in figures(metrics)
    gone = FULL["losses"] | {"found": [{**FULL["losses"]["found"][0], "partition": 7}]}
    observe(metrics, 10, parts=FULL | {"losses": gone})
    assert figures(metrics)["partition.lost orders 0 t 7"] == 4, "it was deleted"


def test_no_volume_that_will_be_full_is_no_figure() -> None:
    metrics = QueryMetrics()
    observe(metrics, 7, parts={"volumes": {"throttleFactor": 1.0, "timeToFullMs": -1}})
    assert "throttle_factor orders 0" in figures(metrics)
    assert "volumes.full.time orders 0" not in figures(metrics)


def test_counters_add_up_and_a_batch_or_a_plan_told_twice_counts_once() -> None:
    metrics = QueryMetrics()
    observe(metrics, 7, parts=FULL)
    observe(metrics, 7, parts=FULL)
    observe(metrics, 8, parts=FULL)
    found = figures(metrics)
    assert (found["batches orders"], found["records orders"]) == (2, 6)
    assert found["read.bytes orders 0"] == 4_000_000
    assert found["mirror.committed orders 0"] == 5
    assert found["lost orders 0"] == 4
    observe(metrics, 9, parts=FULL | {"plan": {"number": 5, "bytes": 1, "fetchedBytes": 2}})
    assert figures(metrics)["read.bytes orders 0"] == 4_000_001


def test_a_restart_goes_on_counting() -> None:
    """The run is another one: its plans and the sums of its mirror begin anew."""
    metrics = QueryMetrics()
    observe(metrics, 7, parts=FULL)
    metrics.end("orders", RUN_ID, failed=True)
    observe(metrics, 7, parts=FULL, run_id=OTHER_RUN)
    found = figures(metrics)
    assert (found["batches orders"], found["query.failures orders"]) == (2, 1)
    assert (found["mirror.committed orders 0"], found["read.bytes orders 0"]) == (10, 8_000_000)
    assert found["query.running orders"] == 1


def test_what_ended_has_no_gauges_but_keeps_its_counts() -> None:
    metrics = QueryMetrics()
    observe(metrics, 7, parts=FULL)
    observe(metrics, 1, name="other", run_id=OTHER_RUN)
    metrics.end("orders", RUN_ID, failed=False)
    found = figures(metrics)
    assert found["query.running orders"] == 0
    assert found["batches orders"] == 1
    assert "lag orders 0" not in found
    assert found["lag other 0"] == 6


def test_a_query_that_failed_without_a_batch_is_counted() -> None:
    metrics = QueryMetrics()
    metrics.end("orders", RUN_ID, failed=False)
    assert figures(metrics) == {}
    for _ in range(2):
        metrics.end("orders", RUN_ID, failed=True)
    assert figures(metrics) == {"query.running orders": 0, "query.failures orders": 2}
    observe(metrics, 7)
    assert figures(metrics)["query.failures orders"] == 2


def test_a_query_that_fails_again_is_not_forgotten_for_those_that_ended_since() -> None:
    metrics = QueryMetrics()
    for name in ("fails", *(f"q{number}" for number in range(150))):
        metrics.end(name, RUN_ID, failed=True)
        metrics.end("fails", OTHER_RUN, failed=True)
    assert figures(metrics)["query.failures fails"] == 152


def test_the_end_of_a_run_may_be_told_after_the_next_one_began() -> None:
    metrics = QueryMetrics()
    observe(metrics, 7)
    observe(metrics, 8, run_id=OTHER_RUN)
    metrics.end("orders", RUN_ID, failed=True)
    found = figures(metrics)
    assert (found["query.running orders"], found["query.failures orders"]) == (1, 1)
    assert found["lag orders 0"] == 6


def test_queries_that_ended_long_ago_are_forgotten() -> None:
    metrics = QueryMetrics()
    observe(metrics, 1, name="lives")
    for number in range(150):
        observe(metrics, 1, name=f"q{number}")
        metrics.end(f"q{number}", RUN_ID, failed=False)
    names = {sample.labels[0] for sample in metrics.samples()}
    assert len(names) == 101
    assert names >= {"lives", "q149"}
    assert "q49" not in names


def test_labelled_partitions_are_the_same_ones_at_all_times() -> None:
    metrics = QueryMetrics(partitions_max=2)
    for batch, slow in enumerate("0123"):
        ends = dict.fromkeys("0123", 5) | {slow: 100}
        observe(metrics, batch, end=dict.fromkeys("0123", 1), latest=ends)
        told = [name for name in figures(metrics) if name.startswith("partition.lag")]
        assert told == ["partition.lag orders 0 t 0", "partition.lag orders 0 t 1"]


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.name)
def test_names_are_what_each_field_expects(metric: Any) -> None:
    name = prometheus_name(metric)
    assert re.fullmatch(r"keyrange_[a-z_]+", name)
    assert not name.endswith("_total")
    assert re.fullmatch(r"keyrange(\.[a-z_]+)+", metric.name)
    assert metric.unit in {"1", "s", "By"} or re.fullmatch(r"\{[a-z]+\}", metric.unit)
    assert metric.help.endswith(".")
    if metric.unit in ("s", "By"):
        assert name.endswith({"s": "_seconds", "By": "_bytes"}[metric.unit])


def test_no_name_is_another_ones_namespace_and_none_is_there_twice() -> None:
    names = {metric.name for metric in TABLE}
    assert len(names) == len(TABLE) == len({prometheus_name(metric) for metric in TABLE})
    for name in names:
        assert not [other for other in names if other.startswith(f"{name}.")]
