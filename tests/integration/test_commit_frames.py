"""`keyrange.commits`: a commit table as Spark reads it, in rows of pending records and of done
ranges."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import keyrange
from keyrange.errors import InvalidError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause

KEPT = {"group": "g", "source_id": "s", "commit_seq": 2, "topic": "t", "partition": 0}


def test_pending_records_and_done_ranges_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    pending = (
        PendingRecord(45, 3, 0, 900_000, 400_000),
        PendingRecord(46, 4, 1, 2**63 - 1, 400_000, Cause.HELD_BACK),
        PendingRecord(48, 3, 2, 900_000, 400_000, Cause.TIMED_OUT),
    )
    pieces = (
        KeyRangeState(KeyRange(0, 10), 60, pending),
        KeyRangeState(KeyRange(10, HASH_MAX + 1), 60),
    )
    table = open_commit_table(CommitOptions(table=str(tmp_path / "c")), "s")
    table.append(Commit(1, CommitKind.FENCE, "g", "s", "q", "r", -1, 0))
    states = {TopicPartition("t", 0): PartitionState("id", 61, pieces)}
    table.append(Commit(2, CommitKind.BATCH, "g", "s", "q", "r", 0, 1000, states=states))
    frame = spark.read.format("delta").load(str(tmp_path / "c"))
    kept = KEPT | {"lo": 0, "hi": 9}
    done = keyrange.commits(frame, "done").orderBy("from_offset").collect()
    assert [row.asDict() for row in done] == [
        kept | {"from_offset": 47, "until_offset": 48},
        kept | {"from_offset": 49, "until_offset": 60},
    ]
    found = [row.asDict() for row in keyrange.commits(frame).orderBy("offset").collect()]
    assert {row.pop("since").timestamp() for row in found} == {400}
    assert [(due := row.pop("due")) and due.timestamp() for row in found] == [900, None, 900]
    assert found == [
        kept | {"offset": 45, "key_hash": 3, "deliveries": 0, "cause": "rejected"},
        kept | {"offset": 46, "key_hash": 4, "deliveries": 1, "cause": "held_back"},
        kept | {"offset": 48, "key_hash": 3, "deliveries": 2, "cause": "timed_out"},
    ]
    with pytest.raises(InvalidError, match="pending or done"):
        keyrange.commits(frame, "gaps")
