"""Group `consumer`: the plain consumer beside kafka-python's, each alone with one topic.

Both take every record and commit after each poll: `keyrange.Consumer` to its table, as Arrow
batches and as records, the other one to its Kafka group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_least, from_runs, ratio
from bench.registry import Bench, Group
from keyrange import Consumer, TopicPartition

PARTITIONS = 4
_SIDES = ("arrow", "records", "kafka_python")


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=1_000_000, quick=200_000, tiny=4_000)
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "consumer", PARTITIONS)
    with sparks.session(bench.directory) as spark:
        topics.fill(topics.records(spark, rows, 200, PARTITIONS), servers, topic, "none")
    bench.progress(f"{rows:,} records written")
    seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
    numbers = count()
    for number in range(-1, bench.runs):
        for side in _SIDES:
            taken = _seconds(bench, topic, rows, side, f"{side}-{next(numbers)}")
            if number >= 0:  # the first one compiles, and brings the log into the page cache
                seconds[side].append(taken)
    for side in ("arrow", "records"):
        yield ratio(f"consumer.{side}.vs_kafka_python", seconds["kafka_python"], seconds[side])
    for side in _SIDES:
        rates = [rows / each / 1e6 for each in seconds[side]]
        yield from_runs(f"consumer.{side}.mrec_per_second", rates, "M/s")
    topics.delete_topic(servers, topic)


def _seconds(bench: Bench, topic: str, rows: int, side: str, group: str) -> float:
    if side == "kafka_python":
        return _of_kafka_python(bench, topic, rows, group)
    options = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "kafka.group.id": group,
        "commitTable": str(bench.directory / group),
        "startingOffsets": "earliest",
        "member.name": group,
    }
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, number): [] for number in range(PARTITIONS)})
        poll = _arrow(consumer) if side == "arrow" else _records(consumer)
        return _timed(rows, poll)


def _arrow(consumer: Consumer) -> Callable[[], int]:
    def poll() -> int:
        batches = consumer.poll(1_000)
        for each in batches:
            consumer.acknowledge(each)
        consumer.commit()
        return sum(each.num_rows for each in batches)

    return poll


def _records(consumer: Consumer) -> Callable[[], int]:
    def poll() -> int:
        records = consumer.poll_records(1_000)
        consumer.acknowledge(records)
        consumer.commit()
        return len(records)

    return poll


def _of_kafka_python(bench: Bench, topic: str, rows: int, group: str) -> float:
    consumer = KafkaConsumer(
        bootstrap_servers=bench.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10_000,
    )
    try:
        consumer.assign([KafkaPartition(topic, number) for number in range(PARTITIONS)])

        def poll() -> int:
            found = consumer.poll(1_000)
            consumer.commit()
            return sum(map(len, found.values()))

        return _timed(rows, poll)
    finally:
        consumer.close()


def _timed(rows: int, poll: Callable[[], int]) -> float:
    """How long it takes until all rows have come."""
    started, seen = time.perf_counter(), 0
    while seen < rows:
        seen += poll()
    return time.perf_counter() - started


GROUP = Group(
    name="consumer",
    order=11,
    run=run,
    targets={"consumer.arrow.vs_kafka_python": at_least(3.0)},
)
