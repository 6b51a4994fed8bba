"""State that a query takes up from the commits of another one, whose checkpoint is not its own, and
state as of an earlier commit."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TOTAL = {"total": keyrange.ValueState("n long")}


def count(record: Any, state: Any) -> Any:
    total = state.total.get(default=0) + 1
    state.total.update(total)
    return record.key.decode(), total, record.offset


def test_a_query_with_another_checkpoint_counts_on(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Its commits begin with number 1, and what it changes is newer than what it has taken up."""
    job = TableJob(spark, topics, tmp_path)
    given = individual(tmp_path, splitBy="keyRange", keyRangesPerPartition="2")
    given |= {"slot.directory": str(tmp_path / "slots"), "maxOffsetsPerTrigger": "40"}
    for start, checkpoint in ((0, "old"), (80, "new"), (160, "new"), (240, "new")):
        job.produce(*(Record(b"", b"k%d" % (n % 40), n % 2) for n in range(start, start + 80)))
        job.checkpoint = tmp_path / checkpoint
        how = "fail" if checkpoint == "old" else "resume"
        job.run(
            count,
            "key string, n long, at long",
            state=TOTAL,
            **given,
            **{"commitTable.onFreshStart": how},
        )
    seen: Counter[str] = Counter()
    for row in sorted(job.rows(), key=lambda row: row["at"]):
        seen[row["key"]] += 1
        assert row["n"] == seen[row["key"]], row
    assert seen.total() == 320


def test_at_a_commit_is_what_had_not_expired(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    job.produce(*(Record(b"", b"k%d" % n, n % 2) for n in range(20)))
    state = {"total": keyrange.ValueState("n long", ttl="6s")}
    given = individual(tmp_path, splitBy="keyRange")
    job.run(count, "key string, n long, at long", state=state, **given)
    table = str(tmp_path / "commits")
    last = document("commits", "show", table)["seq"]
    wait_until(lambda: keyrange.state(spark, table).count() == 0)
    assert keyrange.state(spark, table, at=last).count() == 20


def test_a_partition_that_a_topic_lost_has_no_state(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    given = individual(tmp_path, splitBy="keyRange", failOnDataLoss="false")
    table = str(tmp_path / "commits")

    def partitions(count_of: int) -> set[int]:
        """Those that have state, with records in so many partitions more."""
        job.produce(*(Record(b"", b"k%d" % n, n % count_of) for n in range(20)))
        job.run(count, "key string, n long, at long", state=TOTAL, **given)
        return {row.partition for row in keyrange.state(spark, table).collect()}

    assert partitions(2) == {0, 1}
    topics.delete_topic(job.topic)
    topics.create_named(job.topic, 1)
    assert partitions(1) == {0}
    assert {each["partition"] for each in document("state", "show", table)["partitions"]} == {0}
