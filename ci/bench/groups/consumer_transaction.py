"""Group `consumer_transaction`: from a topic to a topic without Spark, exactly once, beside
kafka-python.

Both sides take records, put a word in front of each value, send them, and commit what they sent
with what they read, poll by poll: `keyrange.Consumer` by its transactions, as Arrow batches and as
records, kafka-python by `send_offsets_to_transaction`. What the topics have for readers of
committed records is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata

from bench import consuming, topics
from bench.consuming import PARTITIONS, Poll, kafka_pythons, keyranges, seconds_until
from bench.figures import Figure, at_least
from bench.registry import Bench, Group
from keyrange import Consumer, TopicPartition

_WORD = b"seen "


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=500_000, quick=100_000, tiny=4_000)
    servers = bench.bootstrap_servers

    def seconds(side: str, topic: str, group: str) -> float:
        output = topics.create_topic(servers, f"sent-{group}", PARTITIONS)
        if side == "kafka_python":
            taken = _of_kafka_python(bench, topic, output, rows, group)
        else:
            made = _arrow if side == "arrow" else _records
            with keyranges(bench, topic, group) as consumer:
                taken = seconds_until(rows, made(consumer, output))
        found = _committed(bench, output)
        # One that did not do the work would be the fastest.
        if found != rows:
            raise RuntimeError(f"{side} sent {found} of {rows} records")
        topics.delete_topic(servers, output)
        return taken

    yield from consuming.compared(bench, "consumer.transaction", rows, seconds, arrow="")


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


def _of_kafka_python(bench: Bench, topic: str, output: str, rows: int, group: str) -> float:
    producer = KafkaProducer(
        bootstrap_servers=bench.bootstrap_servers,
        transactional_id=group,
        acks="all",
        batch_size=131_072,
        linger_ms=5,
    )
    with closing(producer), kafka_pythons(bench, topic, group) as consumer:
        producer.init_transactions()
        return seconds_until(rows, _kafka_python(consumer, producer, output))


def _kafka_python(consumer: KafkaConsumer, producer: KafkaProducer, output: str) -> Poll:
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

    return poll


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
    order=11,
    run=run,
    targets={"consumer.transaction.vs_kafka_python": at_least(5.0)},
)
