"""Queries that commit individually and are cut otherwise from run to run, or have a key range that
is far behind: what is done never comes again, and each key stays in order."""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics, wait_until
from keyrange.model.key_ranges import SPACE, hash_of, split_evenly
from keyrange.model.offsets import TopicPartition
from queries.individual import SOON, Job, Journal, mended, values

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.usefixtures("no_query_left")

LOWER, UPPER = split_evenly(SPACE, 2)
CUTS = (
    {"splitBy": "keyRange", "keyRangesPerPartition": "4", "bytesPerTask": "0"},
    {"splitBy": "partition"},
    {"splitBy": "keyRange", "keyRangesPerPartition": "7", "parallelism": "3"},
)


@pytest.mark.parametrize(
    "cuts",
    [CUTS, pytest.param(CUTS[::-1], marks=pytest.mark.slow)],
    ids=["from-ranges", "to-ranges"],
)
def test_what_is_done_never_comes_again_however_partitions_are_cut(
    spark: SparkSession, topics: Topics, tmp_path: Path, cuts: tuple[dict[str, str], ...]
) -> None:
    """The ranges of two keys come to their limit of pending records, and stay behind the others."""
    topic = topics.create_topic("recut", 2)
    given = {"maxDeliveries": "99", "max.num.ranges.to.commit": "4"}
    query = Job(spark, topics, topic, tmp_path, into=True, **SOON, **given)
    journal = Journal(tmp_path)
    for run, cut in enumerate(cuts):
        numbers = range(150 * run, 150 * (run + 1))
        topics.produce(topic, values(numbers, [n for n in numbers if n % 17 in (3, 8)]))
        if run < 2:
            query.run(journal.work, **cut)
            states = query.known().states.values()
            assert all(state.pending for state in states)
            # At first they are as far as the others.
            differ = [len({piece.scanned for piece in state.pieces}) > 1 for state in states]
            assert differ == [run > 0, run > 0]
    journal.gate.touch()
    query.run(journal.work, **cuts[2], **{"availableNow.redelivery": "drain"})
    assert query.numbers() == list(range(450))
    journal.check_each_done_once_and_in_order()
    assert journal.failures
    assert all(state.committed == state.position for state in query.known().states.values())


def test_a_partition_stops_whose_slowest_range_is_far_behind_and_goes_on_later(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("behind", 1)
    names = (b"key-%d" % n for n in count())
    slow = [next(name for name in names if UPPER.contains(hash_of(name))) for _ in range(20)]
    quick = [next(name for name in names if LOWER.contains(hash_of(name))) for _ in range(20)]
    keys = [key for pair in zip(slow, quick, strict=True) for key in pair]
    topics.produce(topic, [Record(b"%d" % n, keys[n % len(keys)]) for n in range(200)])
    gate = tmp_path / "gate"

    def work(record: Any) -> Any:
        import time

        if record.key in slow and not gate.exists():
            time.sleep(0.4)
        return mended(record)

    query = Job(
        spark,
        topics,
        topic,
        tmp_path,
        into=True,
        splitBy="keyRange",
        keyRangesPerPartition="2",
        bytesPerTask="0",
        **{"maxOffsetsPerTrigger": "100", "batch.time.budget": "1s", "max.range.lag": "20"},
    )
    running = query.start(work)
    query.wait_for(running, 3)
    state = query.known().states[TopicPartition(topic, 0)]
    assert state.position == 100
    assert 0 < state.scanned < 80
    wait_until(lambda: _held(running.lastProgress) == 1)
    gate.touch()
    wait_until(lambda: query.numbers() == list(range(200)) or not running.isActive, 300)
    assert running.isActive, running.exception()
    wait_until(lambda: query.known().states[TopicPartition(topic, 0)].committed == 200)


def _held(progress: Any) -> int:
    """How many partitions take in less, as Spark's progress has it."""
    [source] = json.loads(progress.json)["sources"] if progress else [{}]
    latest = source.get("latestOffset") or {}
    latest = json.loads(latest) if isinstance(latest, str) else latest
    held: int = (
        latest.get("@keyrange", {}).get("metrics", {}).get("commits", {}).get("partitionsHeld", 0)
    )
    return held
