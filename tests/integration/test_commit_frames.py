"""What others read of the tables that keyrange alone writes, and `keyrange.commits`: a commit table
in Spark, in rows of pending records and of done ranges."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
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
from tables.by_duckdb import by_duckdb
from tables.numbered_logs import SUBJECTS, Subject
from tables.racing_writers import compacted

KEPT = {"group": "g", "source_id": "s", "commit_seq": 2, "topic": "t", "partition": 0}

# The column of each table that has the numbers of its entries.
NUMBERS = {"commits": "commit_seq", "assignments": "seq"}


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


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_others_read_a_table_that_was_compacted_and_summed_up(
    spark: SparkSession, tmp_path: Path, subject: Subject
) -> None:
    path, entries = tmp_path / "t", subject.entries(130)
    writer, column = subject.open(path), NUMBERS[subject.name]
    for each in entries:
        writer.append(each)
        subject.maintain(writer)
    compacted()
    table = DeltaTable(path)
    assert (path / "_delta_log" / "_last_checkpoint").exists()
    assert len(table.file_uris()) < 50
    numbers = sorted(
        number for each in entries for number in subject.rows_of(each).column(column).to_pylist()
    )
    assert sorted(table.to_pyarrow_table().column(column).to_pylist()) == numbers
    rows = spark.read.format("delta").load(str(path)).select(column).collect()
    assert sorted(row[column] for row in rows) == numbers
    assert sorted(by_duckdb(path, column)) == numbers
