"""A process that sends a job to a topic, transaction by transaction, and may be killed at any time.

Run as a program: BOOTSTRAP_SERVERS TOPIC TRANSACTIONS ROWS. It goes on behind the last token, and
says a word when it begins.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.kafka.transactional_producer import (
    TransactionalProducer,
)
from keyrange.model.offsets import TopicPartition
from keyrange.options.kafka_properties import ClientSettings
from keyrange.wire.produced_batches import RecordWriter
from keyrange.wire.topic_limits import BatchSettings

NOW_MS = 1_700_000_000_000
KEYS = 50


def client_settings(servers: str) -> ClientSettings:
    host, _, port = servers.rpartition(":")
    return ClientSettings(bootstrap_servers=((host, int(port)),))


def transaction_settings(topic: str) -> SenderSettings:
    return SenderSettings(f"id-{topic}", TopicPartition(topic, 0))


def rows_of(number: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": [f"key-{row % KEYS}".encode() for row in range(rows)],
            "value": [f"{number}:{row}".encode() for row in range(rows)],
        }
    )


def batches(
    topic: str, rows: pa.RecordBatch, partitions: int, settings: BatchSettings | None = None
) -> list[Batch]:
    writer = RecordWriter(topic, partitions, settings or BatchSettings(batch_bytes=8_000))
    return [
        Batch(TopicPartition(topic, each.partition), len(each.rows), len(each.data), each.data)
        for each in writer.write(rows, NOW_MS)
    ]


def main() -> None:
    servers, topic, transactions, rows = sys.argv[1:]
    cluster = Cluster(client_settings(servers))
    partitions = len(cluster.describe([topic]).partitions())
    made = [batches(topic, rows_of(n, int(rows)), partitions) for n in range(int(transactions))]
    print("begins", flush=True)
    producer = TransactionalProducer(cluster, transaction_settings(topic))
    last = producer.start()
    for number in range(last.number + 1 if last else 0, int(transactions)):
        producer.send(made[number], Token(number))


if __name__ == "__main__":
    main()
