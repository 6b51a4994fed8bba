"""Group `consumer_transaction`: from a topic to a topic without Spark, exactly once, beside
kafka-python.

Both sides take records, put a word in front of each value, send them, and commit what they sent
with what they read, poll by poll: `keyrange.Consumer` by its transactions, as Arrow batches and as
records, kafka-python by `send_offsets_to_transaction`. What the topics have for readers of
committed records is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_least, from_runs, ratio
from bench.registry import Bench, Group
from keyrange import Consumer, TopicPartition

PARTITIONS = 4
# Of a poll of kafka-python's, about as many as keyrange takes in one of its own.
_POLL_RECORDS = 10_000
_SIDES = ("arrow", "records", "kafka_python")
_WORD = b"seen "

Poll = Callable[[], int]


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=500_000, quick=100_000, tiny=4_000)
    servers = bench.bootstrap_servers
    topic = topics.create_topic(servers, "transacting", PARTITIONS)
    with sparks.session(bench.directory) as spark:
        topics.fill(topics.records(spark, rows, 200, PARTITIONS), servers, topic, "none")
    bench.progress(f"{rows:,} records written")
    seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
    numbers = count()
    for number in range(-1, bench.runs):
        for side in sorted(_SIDES, reverse=number % 2 == 1):
            taken = _seconds(bench, topic, rows, side, f"sent-{side}-{next(numbers)}")
            if number >= 0:  # the first one compiles, and brings the log into the page cache
                seconds[side].append(taken)
            bench.progress(f"{side}: {rows / taken / 1e6:.3f} M/s")
    for side in ("arrow", "records"):
        name = f"consumer.transaction.{'' if side == 'arrow' else 'records.'}vs_kafka_python"
        yield ratio(name, seconds["kafka_python"], seconds[side])
    for side in _SIDES:
        rates = [rows / each / 1e6 for each in seconds[side]]
        yield from_runs(f"consumer.transaction.{side}.mrec_per_second", rates, "M/s")
    topics.delete_topic(servers, topic)


def _seconds(bench: Bench, topic: str, rows: int, side: str, group: str) -> float:
    servers = bench.bootstrap_servers
    output = topics.create_topic(servers, group, PARTITIONS)
    if side == "kafka_python":
        taken = _of_kafka_python(servers, topic, output, rows, group)
    else:
        taken = _of_keyrange(bench, topic, output, rows, side, group)
    found = _committed(bench, output)
    # One that did not do the work would be the fastest.
    if found != rows:
        raise RuntimeError(f"{side} sent {found} of {rows} records")
    topics.delete_topic(servers, output)
    return taken


def _of_keyrange(bench: Bench, topic: str, output: str, rows: int, side: str, group: str) -> float:
    options = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "kafka.group.id": group,
        "commitTable": str(bench.directory / group),
        "startingOffsets": "earliest",
        "member.name": group,
    }
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, number): [] for number in range(PARTITIONS)})
        poll = _arrow(consumer, output) if side == "arrow" else _records(consumer, output)
        return _timed(rows, poll)


def _arrow(consumer: Consumer, output: str) -> Poll:
    word = pa.scalar(_WORD, pa.binary())
    nothing = pa.scalar(b"", pa.binary())

    def poll() -> int:
        rows = 0
        with consumer.transaction() as transaction:
            for batch in consumer.poll(1_000):
                values = pc.binary_join_element_wise(word, batch["value"], nothing)
                columns = {"key": batch["key"], "value": values}
                transaction.send(pa.RecordBatch.from_pydict(columns), topic=output)
                consumer.acknowledge(batch)
                rows += batch.num_rows
        return rows

    return poll


def _records(consumer: Consumer, output: str) -> Poll:
    def poll() -> int:
        with consumer.transaction() as transaction:
            records = consumer.poll_records(1_000)
            sent = [{"key": each.key, "value": _WORD + each.value} for each in records]
            transaction.send(sent, topic=output)
            consumer.acknowledge(records)
        return len(records)

    return poll


def _of_kafka_python(servers: str, topic: str, output: str, rows: int, group: str) -> float:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=_POLL_RECORDS,
    )
    producer = KafkaProducer(
        bootstrap_servers=servers,
        transactional_id=group,
        acks="all",
        batch_size=131_072,
        linger_ms=5,
    )
    try:
        producer.init_transactions()
        consumer.assign([KafkaPartition(topic, number) for number in range(PARTITIONS)])

        def poll() -> int:
            found = consumer.poll(1_000)
            producer.begin_transaction()
            for records in found.values():
                for each in records:
                    producer.send(output, key=each.key, value=_WORD + each.value)
            ends = {
                place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for place, records in found.items()
            }
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            producer.commit_transaction()
            return sum(map(len, found.values()))

        return _timed(rows, poll)
    finally:
        producer.close()
        consumer.close()


def _timed(rows: int, poll: Poll) -> float:
    """How long it takes until all rows are sent."""
    started, seen = time.perf_counter(), 0
    while seen < rows:
        seen += poll()
    return time.perf_counter() - started


def _committed(bench: Bench, topic: str) -> int:
    """How many records a topic has for readers of committed ones."""
    options = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "commitTable": str(bench.directory / f"count-{topic}"),
        "commitGroup": topic,
        "mirrorOffsets": "false",
        "startingOffsets": "earliest",
        "columns": "offset",
    }
    found = 0
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, number): [] for number in range(PARTITIONS)})
        while batches := consumer.poll(500):
            for batch in batches:
                found += consumer.acknowledge(batch)
    return found


GROUP = Group(
    name="consumer_transaction",
    order=11,
    run=run,
    targets={"consumer.transaction.vs_kafka_python": at_least(5.0)},
)
