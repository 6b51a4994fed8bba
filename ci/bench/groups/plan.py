"""Group `plan`: how long planning takes for a topic of 10,000 partitions, all with records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bench import topics
from bench.figures import Figure, at_most, from_runs
from bench.registry import Bench, Group
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.embedded.settings import BrokerSettings
from keyrange.members.read_tasks import ReadTask
from keyrange.options import SourceOptions, parse_options
from keyrange.source.batch import KeyRangeBatchReader
from keyrange.source.stream import KeyRangeStreamReader

_NAME = "plan.10k"
# A controller refuses to make 10,000 partitions in one request, so they are added in steps.
_STEP = 2_500
_SETTINGS = BrokerSettings(heap_mb=1024)
# Indexes of the usual 10 MiB would map 200 GB of empty files.
_TOPIC = {"segment.index.bytes": "65536"}


def run(bench: Bench) -> Iterator[Figure]:
    count = bench.pick(full=10_000, quick=10_000, tiny=200)
    with EmbeddedBroker(_SETTINGS) as broker:
        servers = broker.bootstrap_servers
        topic = _topic(bench, servers, count)
        given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        stream, batch = [], []
        for number in range(-1, bench.runs):
            seconds = _stream(parse_options(given | {"startingOffsets": "earliest"}), count)
            batch_seconds = _batch(parse_options(given), count)
            if number >= 0:  # the first one loads modules
                stream.append(seconds)
                batch.append(batch_seconds)
        yield from_runs(f"{_NAME}.seconds", stream, "s")
        yield from_runs(f"{_NAME}.batch.seconds", batch, "s")


def _topic(bench: Bench, servers: str, count: int) -> str:
    """A topic with `count` partitions and a record in each, so that each of them is planned."""
    topic = topics.create_topic(servers, "plan", min(_STEP, count), _TOPIC)
    admin = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=120_000)
    for partitions in range(2 * _STEP, count + 1, _STEP):
        admin.create_partitions({topic: partitions}, timeout_ms=120_000)
        bench.progress(f"{partitions:,} partitions")
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers, acks=1, linger_ms=20, max_block_ms=120_000)
    # Partitions that were made a moment ago come into the metadata one by one.
    while len(producer.partitions_for(topic) or ()) < count:
        time.sleep(0.5)
        producer._metadata.request_update()
    sent = [
        producer.send(topic, key=b"key", value=b"value", partition=number)
        for number in range(count)
    ]
    for future in sent:
        future.get(timeout=120)
    producer.close()
    bench.progress(f"a record in each of {count:,} partitions")
    return topic


def _stream(options: SourceOptions, count: int) -> float:
    """Everything that a new query asks its stream reader before the first task can start."""
    reader = KeyRangeStreamReader(options)
    started = time.perf_counter()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = reader.partitions(start, end)
    seconds = time.perf_counter() - started
    reader.stop()
    _check(tasks, count)
    return seconds


def _batch(options: SourceOptions, count: int) -> float:
    started = time.perf_counter()
    tasks = KeyRangeBatchReader(options).partitions()
    seconds = time.perf_counter() - started
    _check(tasks, count)
    return seconds


def _check(tasks: Sequence[InputPartition], count: int) -> None:
    planned = sum(len(task.splits) for task in tasks if isinstance(task, ReadTask))
    if planned != count:
        raise RuntimeError(f"{planned} splits were planned, not {count}")


GROUP = Group(
    order=4,
    run=run,
    targets={f"{_NAME}.seconds": at_most(5), f"{_NAME}.batch.seconds": at_most(5)},
    own_broker=True,
)
