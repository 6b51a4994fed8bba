"""Streams whose batches a test commits by hand: what is not done comes again, alone and in order,
and nothing else does.

Every batch is held against what its plan hands out, record by record of the whole topic.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id

from brokers.real_broker import Record, Topics, wait_until
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.columns import COLUMNS
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.work.model.outcome import Cause, RecordOutcome
from project.forms import by_form, usually
from spark.sources import batch, committed, options, planned_offsets, run_available_now, stream
from tables.committing import commit_batch

Verdict = Callable[[int, list[Row]], Mapping[TopicPartition, PartitionVerdict]]
# Three tasks for two partitions: there is one that two tasks share.
BY_KEY = {"splitBy": "keyRange", "keyRangesPerPartition": "4", "parallelism": "3"}
AT_ONCE = {"redelivery.backoff": "0"}
NO_BATCH: dict[str, Any] = {"@keyrange": {"version": 1}}
LOWER, UPPER = split_evenly(SPACE, 2)


class Query:
    """A query over one topic, its checkpoint, its commit table, and what its batches held."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, records: list[Record]):
        self.spark, self.topics = spark, topics
        self.topic = topics.create_topic("again", 2)
        topics.produce(self.topic, records, batch_size=600, linger_ms=20)
        self.checkpoint = home / "checkpoint"
        self.given = {
            "startingOffsets": "earliest",
            "commitMode": "individual",
            "commitTable": str(home / "commits"),
        }
        self.verdict: Verdict = lambda _, __: {}
        self.crashes_at = -1
        self.batches: dict[int, list[Row]] = {}
        self.deliveries: dict[int, Mapping[TopicPartition, PartitionDelivery]] = {}

    @property
    def options(self) -> SourceOptions:
        return parse_options(options(self.topics, self.topic, **self.given), "stream")

    def frame(self) -> DataFrame:
        return stream(self.spark, self.topics, self.topic, **self.given)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.withColumn("task", spark_partition_id()).collect()
        start = planned_offsets(self.checkpoint, batch_id - 1) if batch_id else NO_BATCH
        end = planned_offsets(self.checkpoint, batch_id)
        verdicts = self.verdict(batch_id, rows)
        self.batches[batch_id] = rows
        self.deliveries[batch_id] = commit_batch(
            open_commit_table, self.options, start, end, verdicts, batch_id
        )
        if batch_id == self.crashes_at:
            self.crashes_at = -1
            raise RuntimeError("the driver is gone")

    def run(self, **given: str) -> None:
        self.given |= given
        run_available_now(self.frame(), self.checkpoint, self)

    def known(self) -> Snapshot:
        source_id = planned_offsets(self.checkpoint, 0)["@keyrange"]["commits"]["sourceId"]
        return open_commit_table(self.options.commits, source_id).known()

    def check(self, **given: str) -> None:
        """Every batch held what its plan hands out, and each task had it in order."""
        plain = {"includeKeyHash": "true", **given}
        log = batch(self.spark, self.topics, self.topic, **plain).collect()
        for batch_id, rows in self.batches.items():
            found = [(row.partition, row.offset) for row in rows]
            assert sorted(found) == handed_out(self.deliveries[batch_id], log), batch_id
            by_task = defaultdict(list)
            for row in rows:
                by_task[row.task, row.partition].append(row.offset)
            for offsets in by_task.values():
                assert all(a < b for a, b in pairwise(offsets)), batch_id


def handed_out(
    deliveries: Mapping[TopicPartition, PartitionDelivery], log: list[Row]
) -> list[tuple[int, int]]:
    def is_handed_out(row: Row) -> bool:
        delivery = deliveries.get(TopicPartition(row.topic, row.partition))
        if delivery is None:
            return False
        again = any(record.offset == row.offset for record in delivery.redelivered)
        return again or any(
            cell.span.contains(row.keyHash) and cell.from_offset <= row.offset < cell.until_offset
            for cell in delivery.cells
        )

    return sorted((row.partition, row.offset) for row in log if is_handed_out(row))


def records(count: int, partitions: int = 2) -> list[Record]:
    return [
        Record(b"%06d" % n, b"key-%d" % (n % 30) if n % 7 else None, n % partitions)
        for n in range(count)
    ]


def rejects(rows: list[Row], *chosen: Row) -> dict[TopicPartition, PartitionVerdict]:
    return {
        TopicPartition(topic, partition): PartitionVerdict(
            tuple(
                RecordOutcome(row.offset, row.keyHash, Cause.REJECTED)
                for row in sorted(chosen, key=lambda row: row.offset)
                if row.partition == partition
            )
        )
        for topic, partition in {(row.topic, row.partition) for row in rows}
    }


def once(*numbers: int) -> Verdict:
    """Records whose value is one of `numbers` fail in the first batch."""

    def verdict(batch_id: int, rows: list[Row]) -> Mapping[TopicPartition, PartitionVerdict]:
        failed = [row for row in rows if int(bytes(row.value)) in numbers and batch_id == 0]
        return rejects(rows, *failed)

    return verdict


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows)


@pytest.fixture
def query(
    spark: SparkSession, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> Query:
    return Query(spark, topics, tmp_path, getattr(request, "param", records(200)))


@pytest.mark.parametrize("split", usually(BY_KEY, {}), ids=["keyRange", "partition"])
def test_what_failed_comes_again_alone(query: Query, split: dict[str, str]) -> None:
    query.verdict = once(3, 4, 90, 199)
    query.run(columns="value", **split, **AT_ONCE)
    assert [numbers(rows) for rows in query.batches.values()] == [[*range(200)], [3, 4, 90, 199]]
    assert set(query.batches[1][0].asDict()) == {*COLUMNS, "task"} - {"timestampType", "headers"}
    query.check()
    assert all(not state.pending for state in query.known().states.values())
    assert committed(query.checkpoint) == [0, 1]


def test_what_waits_stays_for_a_later_run(query: Query) -> None:
    query.verdict = once(5, 6)
    query.run(**{"redelivery.backoff": "1h", "redelivery.backoff.max": "1h"})
    query.run()
    assert committed(query.checkpoint) == [0], "nothing was deliverable"
    states = query.known().states.values()
    assert sorted(len(state.pending) for state in states) == [1, 1]


def test_a_run_that_drains_waits_for_what_waits(query: Query) -> None:
    query.verdict = once(5, 6)
    query.run(**{"redelivery.backoff": "1s", "availableNow.redelivery": "drain"})
    assert [numbers(rows) for rows in query.batches.values()][1:] == [[5, 6]]


def test_an_idle_query_runs_no_batch_until_something_is_due(query: Query) -> None:
    verdict, called = once(8), []

    def noted(batch_id: int, rows: list[Row]) -> Mapping[TopicPartition, PartitionVerdict]:
        called.append(time.monotonic())
        return verdict(batch_id, rows)

    query.verdict = noted
    query.given["redelivery.backoff"] = "3s"
    running = query.frame().writeStream.foreachBatch(query)
    started = running.option("checkpointLocation", str(query.checkpoint)).start()
    try:
        wait_until(lambda: committed(query.checkpoint) == [0, 1] or not started.isActive)
        time.sleep(2)
        assert started.isActive, started.exception()
    finally:
        started.stop()
    assert [numbers(rows) for rows in query.batches.values()][1:] == [[8]]
    assert query.batches.keys() == {0, 1}
    first, second = called
    assert second - first > 2.9  # clocks differ by milliseconds
    query.check()


def test_a_batch_that_was_committed_and_not_finished_is_the_same_batch_again(query: Query) -> None:
    query.verdict = once(5, 6, 7)
    query.crashes_at = 1
    with pytest.raises(StreamingQueryException, match="the driver is gone"):
        query.run(**BY_KEY, **AT_ONCE)
    assert committed(query.checkpoint) == [0]
    first, seq = query.batches.pop(1), query.known().seq
    query.topics.produce(query.topic, [Record(b"%06d" % 200, b"new", 0)])
    query.run(keyRangesPerPartition="2", keyOrder="skipAhead")
    assert numbers(query.batches[1]) == numbers(first) == [5, 6, 7]
    assert query.known().seq == seq + 1
    assert numbers(query.batches[2]) == [200]
    query.check()


def test_a_range_that_is_behind_catches_up_and_the_others_go_on(query: Query) -> None:
    def verdict(batch_id: int, rows: list[Row]) -> Mapping[TopicPartition, PartitionVerdict]:
        back = PartitionVerdict(handed_back=((UPPER, 40),))
        return {TopicPartition(query.topic, 0): back} if batch_id == 0 and rows else {}

    query.verdict = verdict
    query.run(maxOffsetsPerTrigger="120", **BY_KEY)
    query.check()
    log = batch(query.spark, query.topics, query.topic, includeKeyHash="true").collect()
    late = {
        row.offset
        for row in log
        if row.partition == 0 and UPPER.contains(row.keyHash) and 40 <= row.offset < 60
    }
    second = {row.offset for row in query.batches[1] if row.partition == 0}
    assert late
    assert late <= second
    assert not {row.offset for row in log if row.partition == 0 and row.offset < 40} & second


def test_a_range_at_its_limit_stops_and_the_others_go_on(query: Query) -> None:
    """Who shares the partition on this host leaves its records out."""

    def verdict(batch_id: int, rows: list[Row]) -> Mapping[TopicPartition, PartitionVerdict]:
        return rejects(rows, *(row for row in rows if LOWER.contains(row.keyHash)))

    query.verdict = verdict
    limits = {"max.num.ranges.to.commit": "10", "redelivery.backoff": "1h"}
    hour = {"redelivery.backoff.max": "1h"}
    query.run(maxOffsetsPerTrigger="60", **BY_KEY, **limits, **hour)
    query.check()
    read = [row for rows in query.batches.values() for row in rows]
    upper = [row for row in read if UPPER.contains(row.keyHash)]
    log = batch(query.spark, query.topics, query.topic, includeKeyHash="true").collect()
    assert len(upper) == sum(UPPER.contains(row.keyHash) for row in log)
    assert len(read) < len(log)
    pieces = [p for state in query.known().states.values() for p in state.pieces if p.pending]
    assert all(
        LOWER.contains(piece.span.from_hash) and len(piece.pending) >= 10 for piece in pieces
    )


def test_aborted_transactions_lie_between(query: Query) -> None:
    more = [Record(b"%06d" % n, b"key-%d" % n, n % 2) for n in range(200, 260)]
    query.topics.produce_transaction(query.topic, more[:30], commit=False)
    query.topics.produce_transaction(query.topic, more[30:], commit=True)
    query.verdict = once(1, 199, 230, 259)
    query.run(**{"kafka.isolation.level": "read_committed"}, **BY_KEY, **AT_ONCE)
    assert numbers(query.batches[1]) == [1, 199, 230, 259]
    query.check(**{"kafka.isolation.level": "read_committed"})
    assert all(state.committed == state.position for state in query.known().states.values())


def test_a_hole_below_the_log_s_start_is_a_loss(query: Query) -> None:
    query.verdict = once(2, 150)
    # Longer than a slow machine takes to end the run.
    query.run(**{"redelivery.backoff": "5s"})
    query.topics.delete_records(query.topic, {0: 50, 1: 50})
    time.sleep(5.1)
    with pytest.raises(StreamingQueryException, match="KAFKA_DATA_LOSS"):
        query.run()
    assert query.batches.keys() == {0}
    query.run(failOnDataLoss="false")
    assert numbers(query.batches[1]) == [150]
    assert all(not state.pending for state in query.known().states.values())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("query", [records(by_form(300, 300, 600))], indirect=True)
def test_whatever_fails_everything_is_done_once_in_the_end(query: Query, seed: int) -> None:
    """Rejections and ranges that are handed back at random, and another cut in every run."""
    random = Random(seed)
    done: list[tuple[int, int]] = []

    def verdict(batch_id: int, rows: list[Row]) -> Mapping[TopicPartition, PartitionVerdict]:
        found: dict[TopicPartition, PartitionVerdict] = {}
        by_partition = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.offset):
            by_partition[TopicPartition(row.topic, row.partition)].append(row)
        for partition, own in by_partition.items():
            span = random.choice(split_evenly(SPACE, random.choice([2, 8])))
            at = random.choice(own).offset if random.random() < 0.4 else 10**9
            left = [row for row in own if not (span.contains(row.keyHash) and row.offset >= at)]
            bad = [row for row in left if random.random() < 0.1]
            done.extend((row.partition, row.offset) for row in left if row not in bad)
            found[partition] = PartitionVerdict(
                tuple(RecordOutcome(row.offset, row.keyHash, Cause.REJECTED) for row in bad),
                ((span, at),) if at < 10**9 else (),
            )
        return found

    query.verdict = verdict
    count = by_form(300, 300, 600)
    limits = {"maxOffsetsPerTrigger": str(count // 2), "maxDeliveries": "99"}
    query.run(**BY_KEY, **limits, **AT_ONCE)
    query.topics.produce(query.topic, [Record(b"%06d" % n, b"key-%d" % n, 1) for n in range(60)])
    query.run(keyRangesPerPartition="7")
    query.check()
    assert sorted(done) == sorted((n % 2, n // 2) for n in range(count)) + [
        (1, count // 2 + n) for n in range(60)
    ]
