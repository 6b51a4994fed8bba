"""Consumers of all partitions of a topic without Spark: keyrange's, as Arrow batches and as
records, beside kafka-python's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, from_runs, ratio
from bench.registry import Bench
from keyrange import Consumer, TopicPartition

PARTITIONS = 4
SIDES = ("arrow", "records", "kafka_python")
Poll = Callable[[], int]


def compared(
    bench: Bench, prefix: str, rows: int, seconds: Callable[[str, str, str], float], arrow: str
) -> Iterator[Figure]:
    """Each side by turns, each alone with one topic. `seconds` answers with those that a side takes
    for a topic, in a group; `arrow` stands in the name of the ratio of Arrow batches."""
    servers = bench.bootstrap_servers
    with sparks.session(bench.directory) as spark:
        frame = topics.records(spark, rows, 200, PARTITIONS)
        topic = topics.filled(servers, "consumer", frame, PARTITIONS)
    bench.progress(f"{rows:,} records written")
    numbers = count()

    def side(name: str) -> Callable[[], float]:
        return lambda: seconds(name, topic, f"{name}-{next(numbers)}")

    taken = bench.by_turns(prefix, {name: side(name) for name in SIDES})
    for name, label in (("arrow", arrow), ("records", "records.")):
        yield ratio(f"{prefix}.{label}vs_kafka_python", taken["kafka_python"], taken[name])
    for name, found in taken.items():
        rates = [rows / each / 1e6 for each in found]
        yield from_runs(f"{prefix}.{name}.mrec_per_second", rates, "M/s")
    topics.delete_topic(servers, topic)


@contextmanager
def keyranges(bench: Bench, topic: str, group: str) -> Iterator[Consumer]:
    options = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "kafka.group.id": group,
        "commitTable": str(bench.directory / group),
        "startingOffsets": "earliest",
        "member.name": group,
    }
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, number): [] for number in range(PARTITIONS)})
        yield consumer


@contextmanager
def kafka_pythons(bench: Bench, topic: str, group: str) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=bench.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # About as many as keyrange takes in a poll of its own.
        max_poll_records=10_000,
    )
    try:
        consumer.assign([KafkaPartition(topic, number) for number in range(PARTITIONS)])
        yield consumer
    finally:
        consumer.close()


def seconds_until(rows: int, poll: Poll) -> float:
    """How long it takes until all rows have come."""
    started, seen = time.perf_counter(), 0
    while seen < rows:
        seen += poll()
    return time.perf_counter() - started
