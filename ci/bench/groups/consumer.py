"""Group `consumer`: the plain consumer beside kafka-python's, each alone with one topic.

Both take every record and commit after each poll: `keyrange.Consumer` to its table, as Arrow
batches and as records, the other one to its Kafka group.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka import KafkaConsumer

from bench import consuming
from bench.consuming import Poll, kafka_pythons, keyranges, seconds_until
from bench.figures import Figure, at_least
from bench.registry import Bench, Group
from keyrange import Consumer


def run(bench: Bench) -> Iterator[Figure]:
    rows = bench.pick(full=1_000_000, quick=200_000, tiny=4_000)

    def seconds(side: str, topic: str, group: str) -> float:
        if side == "kafka_python":
            with kafka_pythons(bench, topic, group) as consumer:
                return seconds_until(rows, _kafka_python(consumer))
        with keyranges(bench, topic, group) as consumer:
            return seconds_until(rows, (_arrow if side == "arrow" else _records)(consumer))

    yield from consuming.compared(bench, "consumer", rows, seconds, arrow="arrow.")


def _arrow(consumer: Consumer) -> Poll:
    def poll() -> int:
        batches = consumer.poll(1_000)
        for each in batches:
            consumer.acknowledge(each)
        consumer.commit()
        return sum(each.num_rows for each in batches)

    return poll


def _records(consumer: Consumer) -> Poll:
    def poll() -> int:
        records = consumer.poll_records(1_000)
        consumer.acknowledge(records)
        consumer.commit()
        return len(records)

    return poll


def _kafka_python(consumer: KafkaConsumer) -> Poll:
    def poll() -> int:
        found = consumer.poll(1_000)
        consumer.commit()
        return sum(map(len, found.values()))

    return poll


GROUP = Group(
    order=11,
    run=run,
    targets={"consumer.arrow.vs_kafka_python": at_least(3.0)},
)
