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
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.ranges.model.key_ranges import SPACE
from keyrange.work.model.outcome import Cause


def test_holes_and_done_ranges_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    pending = tuple(PendingRecord(at, at, 1, 2000, 1000, Cause.REJECTED) for at in (3, 7))
    state = PartitionState("id", 10, (KeyRangeState(SPACE, 10, pending),))
    table = open_commit_table(CommitOptions(table=str(tmp_path / "c")), "s")
    table.append(Commit(1, CommitKind.FENCE, "g", "s", "q", "r", -1, 0))
    states = {TopicPartition("t", 0): state}
    table.append(Commit(2, CommitKind.BATCH, "g", "s", "q", "r", 0, 1000, states=states))
    frame = spark.read.format("delta").load(str(tmp_path / "c"))
    found = keyrange.commits(frame).select("topic", "partition", "offset", "cause").collect()
    assert sorted(map(tuple, found)) == [("t", 0, 3, "rejected"), ("t", 0, 7, "rejected")]
    done = keyrange.commits(frame, "done").select("from_offset", "until_offset").collect()
    assert sorted(map(tuple, done)) == [(4, 7), (8, 10)]
    with pytest.raises(InvalidError, match="pending or done"):
        keyrange.commits(frame, "gaps")
