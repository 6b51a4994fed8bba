"""A progress as it is read, its line, and the same for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.query_progress import (
    QueryProgress,
    WorkDone,
    batch_fields,
    batch_line,
    read_query_progress,
    with_result,
)
from samples.progresses import FULL, KEPT, QUERY_ID, RUN_ID, WORK, progress, source

PLAIN = source({"0": 1, "1": 2}, {"0": 3, "1": 6})


def read(document: dict[str, Any]) -> QueryProgress:
    found = read_query_progress(document)
    assert found is not None
    return found


def test_what_a_plain_batch_says() -> None:
    found = read(progress(7, PLAIN))
    assert (found.label, found.query_id, found.run_id) == ("orders", QUERY_ID, RUN_ID)
    assert found.sources[0].behind == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 4}
    assert (found.lag, found.records_per_s, found.factor) == (6, 2.0, None)
    assert (
        batch_line(found)
        == "batch 7: 3 records in 1.50 s (2/s), read lag 6, commit lag 6, query orders"
    )


def test_what_all_parts_say() -> None:
    found = read(progress(7, source({"0": 1}, {"0": 3}, **FULL), name=None))
    assert found.label == QUERY_ID
    assert batch_line(found) == (
        "batch 7: 3 records in 1.50 s (2/s), read lag 2, commit lag 3 before it, "
        "lost 4 offsets: t-0 [3, 7), 37 pending before it, 1 partitions take in less, "
        "throttle factor 0.5, the batch before: 4.0 MB by 8 key ranges sent 1.10 times "
        "90% read by owners"
    )
    fields = batch_fields(found)
    assert (fields["read_lag"], fields["commit_lag"]) == (2, 3)
    assert (fields["pending"], fields["throttle_factor"]) == (37, 0.5)
    assert fields["before"] == {
        "bytes": 4_000_000,
        "key_ranges": 8,
        "tasks": 2,
        "amplification": 1.1,
        "bound_share": 0.9,
    }
    assert fields["lost"] == [{"topic": "t", "partition": 0, "from_offset": 3, "until_offset": 7}]
    json.dumps(fields)


def test_what_is_pending_is_the_number_after_the_batch_where_that_is_known() -> None:
    found = with_result(
        read(progress(7, source({"0": 1}, {"0": 3}, commits=FULL["commits"]))),
        BatchResult(done=3, failed=2, held_back=14, dead=1, pending=15),
    )
    assert batch_line(found) == (
        "batch 7: 3 records in 1.50 s (2/s), read lag 2, commit lag 3 before it, 2 failed, 1 dead, "
        "15 pending, 1 partitions take in less, query orders"
    )
    fields = batch_fields(found)
    assert (fields["pending"], fields["failed"], fields["dead"]) == (15, 2, 1)
    none = with_result(found, BatchResult(done=3, failed=0, held_back=0, dead=0, pending=0))
    assert "pending" not in batch_line(none)
    # All is done: it does not say what was so before the batch.
    assert "read lag 2, commit lag 2," in batch_line(none)
    assert batch_fields(none)["commit_lag"] == 2
    assert batch_fields(none)["pending"] == 0


def test_a_job_counts_records_and_not_the_rows_that_its_tasks_hand_on() -> None:
    found = read(progress(7, PLAIN, observed=WORK))
    assert found.work == WorkDone(100_000, 99_000, 2, 4_200_000)
    assert found.records == found.sources[0].records == 100_000
    assert batch_line(found) == (
        "batch 7: 100,000 records in 1.50 s (66,667/s), read lag 6, commit lag 6, "
        "wrote 99,000 rows, 2 files, 4.2 MB, query orders"
    )
    fields = batch_fields(found)
    assert (fields["records"], fields["records_per_s"]) == (100_000, 66_666.7)
    assert fields["written"] == {"rows": 99_000, "files": 2, "bytes": 4_200_000}


def test_a_job_that_keeps_state_says_what_became_of_it() -> None:
    size = FULL["state"]
    found = read(progress(7, source({"0": 1}, {"0": 3}, state=size), observed=KEPT))
    assert found.records == 100_000
    assert batch_line(found) == (
        "batch 7: 100,000 records in 1.50 s (66,667/s), read lag 2, commit lag 2, "
        "wrote 99,000 rows, 2 files, 4.2 MB, state of 300 keys changed, "
        "restored 2.0 MB of it in 0.25 s, 30 timers fired, 1 timers failed, 5 records late, "
        "2 records ahead of the clock, query orders"
    )
    of_batch = {name: KEPT["keyrange"][f"state_{name}"] for name in ("changed", "restored_ms")}
    of_time = {"watermark_lag_seconds": 61.5, "timers_await_records": 2, "timers_await_retry": 1}
    told = {name: size[name] for name in ("rows", "bytes", "runs")} | of_time | of_batch
    assert batch_fields(found)["state"].items() >= told.items()


def test_a_batch_of_a_job_in_which_nothing_is_done_has_no_records() -> None:
    """Three records failed, so tasks handed on rows, and none says how many records are done."""
    none = {"keyrange": {"records": None, "rows": None, "files": 0, "bytes": None}}
    found = read(progress(7, PLAIN, observed=none))
    assert (found.records, found.work) == (0, WorkDone(0, 0, 0, 0))


def test_a_batch_of_a_job_that_runs_again_reads_no_record() -> None:
    found = read(progress(7, source({"0": 1}, {"0": 3}, records=0)))
    assert (found.records, found.work, batch_fields(found)["written"]) == (0, None, None)


@pytest.mark.parametrize("observed", [None, [], {"keyrange": None}, {"keyrange": {"records": 7}}])
def test_what_others_observe_is_left_alone(observed: Any) -> None:
    found = read(progress(7, PLAIN) | {"observedMetrics": observed})
    assert (found.records, found.work) == (3, None)


@pytest.mark.parametrize("odd", [-1, "7", float("nan"), 2.0**70])
def test_counts_of_a_job_that_are_none_are_refused(odd: Any) -> None:
    with pytest.raises(ValueError, match="is no number of things"):
        read(progress(7, PLAIN, observed={"keyrange": WORK["keyrange"] | {"files": odd}}))


def test_offsets_may_be_text_and_other_sources_are_left_out() -> None:
    as_text = PLAIN | {name: json.dumps(PLAIN[name]) for name in ("endOffset", "latestOffset")}
    other = PLAIN | {"endOffset": {"logOffset": 1}, "latestOffset": None}
    found = read(progress(7, other, as_text))
    assert [each.index for each in found.sources] == [1]
    assert (found.records, found.sources[0].records, found.lag) == (6, 3, 6)
    assert read_query_progress(progress(7, other)) is None
    assert read_query_progress(progress(7)) is None


@pytest.mark.parametrize(
    "end",
    ['{"logOffset":0}', "7", "not JSON", "null", None, {"t": {"0": 1}}, [1], '{"t":{"0":1}}'],
)
def test_a_source_of_somebody_else_is_left_alone(end: Any) -> None:
    other = PLAIN | {"endOffset": end, "latestOffset": end}
    assert read_query_progress(progress(7, other)) is None
    assert [each.index for each in read(progress(7, other, PLAIN)).sources] == [1]


@pytest.mark.parametrize("unknown", [None, "null", "{}"])
def test_what_is_not_known_gives_no_lag(unknown: str | None) -> None:
    """No batch yet, or no look at the cluster yet: either side alone says whose source it is."""
    marked = PLAIN["endOffset"]
    for ends in ((marked, unknown), (unknown, marked)):
        given = PLAIN | dict(zip(("endOffset", "latestOffset"), ends, strict=True))
        found = read(progress(7, given))
        assert (found.lag, found.sources[0].lag) == (None, None)


@pytest.mark.parametrize("odd", [None, 1, "x", [], {"plan": 1}, {"plan": {"bytes": "many"}}])
def test_parts_of_a_later_version_are_no_harm(odd: Any) -> None:
    strange = PLAIN | {"latestOffset": {"@keyrange": {"metrics": odd}, "t": {"0": 3, "1": 6}}}
    found = read(progress(7, strange))
    assert (found.lag, found.sum_of("plan", "bytes")) == (6, None)
    assert batch_fields(found)["before"]["amplification"] is None


def test_what_standbys_read_is_not_their_owners_share() -> None:
    members = FULL["members"] | {"ownPortions": 6, "foreignPortions": 0, "standbyPortions": 2}
    found = read(progress(7, source({"0": 1}, {"0": 3}, members=members)))
    assert batch_fields(found)["before"]["bound_share"] == 0.75


def test_of_several_sources_the_least_factor_and_share_count() -> None:
    def factor(value: float, own: int) -> dict[str, Any]:
        members = FULL["members"] | {"ownPortions": own, "foreignPortions": 10 - own}
        parts = {"volumes": {"throttleFactor": value}, "members": members}
        return source({"0": 1}, {"0": 3}, **parts)

    found = read(progress(7, factor(1.0, 9), factor(0.25, 10), factor(0.5, 4), PLAIN))
    assert (found.factor, found.lag, found.records) == (0.25, 12, 12)
    assert batch_fields(found)["before"]["bound_share"] == 0.4


def test_a_name_moves_no_cursor() -> None:
    line = batch_line(read(progress(7, PLAIN, name="or\x1b[2J\nders")))
    assert line.endswith(r"query or\u001b[2J ders")
