"""Documents of a query, made up, as a report has them."""

from __future__ import annotations

from typing import Any

from keyrange.cli.commits.document import LogEnd, describe, gaps
from keyrange.cli.report.report_inputs import causes
from keyrange.cli.values import iso
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.report.page_parts import Source
from keyrange.work.model.outcome import Cause
from samples.commit_samples import BEGAN_MS
from samples.report_samples import batch

HALF = 2**62
LOWER, UPPER = KeyRange(0, HALF), KeyRange(HALF, HASH_MAX + 1)
HOLES = (
    PendingRecord(120, HALF, 2, 0, BEGAN_MS - 5_000, Cause.TIMED_OUT),
    PendingRecord(130, HALF + HALF // 2, 1, 0, BEGAN_MS - 9_000),
)


def commits(log_end: int = 400) -> Source:
    """Of flights-0 the lower keys stand at 150 of 200, the upper ones have two pending records."""
    pieces = (KeyRangeState(LOWER, 150), KeyRangeState(UPPER, 200, HOLES))
    partition = TopicPartition("flights", 0)
    known = Snapshot(
        3, columns_of({partition: PartitionState("id", 200, pieces)}), 2, "run-1", None
    )
    ends = {partition: LogEnd(log_end, "batch")}
    show = describe(known, None, ends, BEGAN_MS)
    listed = list(gaps(known, BEGAN_MS))
    return Source({"show": show, "gaps": listed, "causes": causes(known), "history": []})


def told(number: int, lags: list[int], **more: Any) -> dict[str, Any]:
    found = batch(number, "committed", 100, None)
    for row, behind in zip(found["positions"], lags, strict=True):
        row["log_end"] = 100 + behind
    usual = {"records": 7, "duration_ms": 1500, "run_id": "run-1"}
    usual |= {"plan": {}, "members": {}, "volumes": {}}
    return found | usual | more


def owners(*rows: tuple[int, int, str]) -> list[dict[str, Any]]:
    return [{"range": [lo, hi], "slot": slot} for lo, hi, slot in rows]


def letter(error: str, status: str = "dead", **more: Any) -> dict[str, Any]:
    usual = {"topic": "t", "partition": 0, "offset": 5, "written_at": iso(BEGAN_MS)}
    usual |= {"attempts": 5, "cause": "timed_out", "key": "k"}
    return {**usual, "error": error, "status": status, **more}
