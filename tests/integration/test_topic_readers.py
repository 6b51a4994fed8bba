"""What a job has sent to a topic, as Kafka's own tools, librdkafka and Kafka's log cleaner see it,
and beside what Spark's own sink writes."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import keyrange
from brokers.committed_records import committed_records
from brokers.java import kafka_tool, transactions
from brokers.real_broker import Record, Topics, kafka_is_before, wait_until
from keyrange.embedded import jars
from keyrange.individual_commits import topic_output
from keyrange.sending.sending_tasks import sending
from keyrange.sending.shard_sender import Share
from keyrange.sending.topic_address import TopicAddress
from queries.individual import failure_of
from queries.topic_jobs import PARTITIONS
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.skipif(kafka_is_before(4), reason="the tools are those of Kafka 4"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LAST = Record(b"the last one", b"end", None, 7)
_TABS = ("timestamp", "partition", "offset", "headers", "key")


def killed_at_its_end(
    address: TopicAddress, shares: Sequence[Share]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that has its rows acknowledged, and is killed before it ends the transaction."""
    send_all = sending(address, shares)

    def killed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from keyrange.kafka.model.sender_messages import EndTransaction
        from keyrange.kafka.transactional_producer import TransactionalProducer

        ask = TransactionalProducer._ask

        def asked(self: Any, send: Any) -> None:
            if isinstance(send.request, EndTransaction):
                os.kill(os.getpid(), signal.SIGKILL)
            ask(self, send)

        TransactionalProducer._ask = asked  # type: ignore[method-assign]
        yield from send_all(batches)

    return killed


def states(topics: Topics) -> list[str]:
    """Of the transactions of jobs that run here."""
    rows = transactions(topics.cluster.bootstrap_servers, "list")
    return [row[-1] for row in rows if row[0].startswith("keyrange:")]


def open_producers(topics: Topics, topic: str, place: str) -> list[list[str]]:
    servers, at = topics.cluster.bootstrap_servers, ("--topic", topic, "--partition", place)
    return transactions(servers, "describe-producers", *at)


@dataclass
class Sent:
    """A topic with two batches of copies, of which the second one was sent twice."""

    topic: str
    records: list[Record]
    # A partition that has rows of both, and what the tool for transactions says while one of them
    # is open that nobody sends to any more.
    open_place: str
    open_states: list[str]
    open_producers: list[list[str]]


@pytest.fixture(scope="module")
def sent(spark: SparkSession, topics: Topics, tmp_path_factory: Any) -> Sent:
    source, topic = topics.create_topic("from", PARTITIONS), topics.create_topic("to", PARTITIONS)
    checkpoint = str(tmp_path_factory.mktemp("readers") / "checkpoint")
    given = options(topics, source, startingOffsets="earliest", includeHeaders="true")
    given["columns"] = "key,value,headers,timestamp"

    def start() -> Any:
        writer = keyrange.job(given).into_topic(topic, checkpoint, spark=spark)
        return writer.trigger(availableNow=True).start()

    def records(numbers: range) -> list[Record]:
        made = []
        for n in numbers:
            headers = [(f"n{each}", b"%d" % n) for each in range(n % 3)]
            value = None if n % 5 == 4 else f"värde {n}".encode()
            made.append(Record(value, b"key-%d" % (n % 7), None, 1_600_000_000_000 + n, headers))
        return made

    first, second = records(range(40)), records(range(40, 60))
    topics.produce(source, first)
    assert start().awaitTermination(240)
    topics.produce(source, second)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_output, "_SMALL_BYTES", 0)
        patch.setattr(topic_output, "sending", killed_at_its_end)
        failure_of(start())
    open_states = states(topics)
    place = str(next(n for n, (_, end) in topics.offsets(topic).items() if end))
    producers = open_producers(topics, topic, place)
    assert start().awaitTermination(240)
    # Behind all others: who waits for it has waited for them.
    topics.produce(topic, [Record(LAST.value, LAST.key, n, LAST.timestamp_ms) for n in range(3)])
    return Sent(topic, [*first, *second], place, open_states, producers)


Seen = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def by_key(found: Iterable[Seen]) -> dict[bytes | None, list[Seen]]:
    kept: dict[bytes | None, list[Seen]] = {}
    for each in found:
        kept.setdefault(each[0], []).append(each)
    return kept


def expected(sent: Sent) -> dict[bytes | None, list[Seen]]:
    whole = [*sent.records, *[LAST] * PARTITIONS]
    return by_key((r.key, r.value, r.timestamp_ms or 0, tuple(r.headers)) for r in whole)


def test_librdkafka_sees_each_record_once(topics: Topics, sent: Sent) -> None:
    def read(level: str) -> list[Seen]:
        config = {"group.id": "none", "isolation.level": level, "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": topics.cluster.bootstrap_servers, **config})
        places = [TopicPartition(sent.topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)]
        consumer.assign(places)
        found: list[Seen] = []
        left = PARTITIONS
        while left:
            [message] = consumer.consume(1, 60) or [None]
            assert message is not None
            assert message.error() is None
            left -= message.key() == LAST.key
            headers = tuple(message.headers() or ())
            found.append((message.key(), message.value(), message.timestamp()[1], headers))
        consumer.close()
        return found

    assert by_key(read("read_committed")) == expected(sent)
    # Else nothing was aborted here, and the other level would not show anything.
    assert len(read("read_uncommitted")) == len(sent.records) + PARTITIONS + 20


def test_the_console_consumer_prints_each_record_once(topics: Topics, sent: Sent) -> None:
    shown = [f"--formatter-property=print.{name}=true" for name in _TABS]
    count = len(sent.records) + PARTITIONS
    printed = kafka_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", topics.cluster.bootstrap_servers, "--topic", sent.topic),
        *("--isolation-level", "read_committed", "--from-beginning", *shown),
        *("--max-messages", str(count)),
    )
    found: list[Seen] = []
    for line in printed.splitlines():
        created, _, _, headers, key, value = line.split("\t")
        pairs = [] if headers == "NO_HEADERS" else [h.split(":") for h in headers.split(",")]
        found.append(
            (
                key.encode(),
                None if value == "null" else value.encode(),
                int(created.removeprefix("CreateTime:")),
                tuple((name, text.encode()) for name, text in pairs),
            )
        )
    assert by_key(found) == expected(sent)


def test_no_transaction_hangs_behind_a_sender_that_was_killed(topics: Topics, sent: Sent) -> None:
    assert "Ongoing" in sent.open_states
    # What was open then, and so the tool would say so now.
    assert any(re.fullmatch(r"\d+", row[-1]) for row in sent.open_producers)
    assert set(states(topics)) <= {"CompleteCommit", "CompleteAbort", "Empty"}
    rows = open_producers(topics, sent.topic, sent.open_place)
    assert {row[-1] for row in rows} == {"None"}


def test_compaction_keeps_the_last_row_of_each_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    quickly = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "1", "delete.retention.ms": "0"}
    source = topics.create_topic("from", 1)
    topic = topics.create_topic("kept", 1, {"cleanup.policy": "compact", **quickly})
    given = options(topics, source, startingOffsets="earliest")

    def run(records: list[Record]) -> None:
        topics.produce(source, records)
        writer = keyrange.job(given).into_topic(topic, str(tmp_path / "checkpoint"), spark=spark)
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    def remaining() -> list[tuple[bytes, bytes | None]]:
        [found] = committed_records(topics, topic, 1)
        return [(each.key, each.value) for each in found if each.key != LAST.key]

    last: dict[bytes, bytes] = {}
    for batch in range(2):
        made = [(b"k%d" % (n % 9), b"%d-%d" % (batch, n)) for n in range(batch, 20)]
        gone = b"k%d" % batch
        run([*(Record(value, key) for key, value in made), Record(None, gone)])
        last |= dict(made)
        del last[gone]
    assert len(last) == 8

    def is_compacted() -> bool:
        # What rolls the segment before it, so that this one is cleaned too.
        topics.produce(topic, [Record(LAST.value, LAST.key)])
        return sorted(remaining(), key=repr) == sorted(last.items(), key=repr)

    wait_until(is_compacted, 60)


def test_records_are_those_of_sparks_own_sink(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    jars.resolve(jars.spark_kafka())
    made = {who: [topics.create_topic(who, PARTITIONS) for _ in "ab"] for who in ("spark", "ours")}
    servers = {"kafka.bootstrap.servers": topics.cluster.bootstrap_servers}
    begun_ms = time.time_ns() // 1_000_000
    pq.write_table(frame_of_all_kinds(), tmp_path / "rows.parquet")
    rows = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "*.parquet")).coalesce(1)

    def named(frame: Any, who: str) -> Any:
        first, second = made[who]
        topic = F.when(F.col("at") % 2 == 0, F.lit(first)).otherwise(F.lit(second))
        return frame.withColumn("topic", topic).drop("at")

    named(rows, "spark").write.format("kafka").options(**servers).save()
    checkpoint = str(tmp_path / "checkpoint")
    topic = keyrange.Topic(options=servers, marks=made["ours"][0])
    query = (
        named(stream, "ours")
        .writeStream.foreachBatch(keyrange.topic_writer(topic, checkpoint))
        .trigger(availableNow=True)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    assert query.awaitTermination(240)

    def fields(each: Any) -> tuple[Any, ...]:
        assert begun_ms <= each.timestamp <= time.time() * 1000
        return each.offset, each.key, each.value, each.timestamp_type, list(each.headers)

    def seen(who: str) -> list[Any]:
        found = [committed_records(topics, name, PARTITIONS) for name in made[who]]
        return [[list(map(fields, part)) for part in parts] for parts in found]

    assert seen("ours") == seen("spark")


def frame_of_all_kinds() -> pa.Table:
    """Rows with and without each part of a record. Without a key a row names its partition: where
    else it goes is the producer's choice."""
    rows = []
    kinds = product((None, b"", "schlüssel".encode()), (None, b"", b"v"), (None, 0, 2), range(4))
    headers = (None, [], [{"key": "h", "value": None}], [{"key": "h", "value": b""}] * 2)
    for at, (key, value, partition, number) in enumerate(kinds):
        row = {"at": at, "key": key, "value": value, "partition": partition}
        rows.append(row | {"headers": headers[number]})
        if key is None and partition is None:
            rows[-1]["partition"] = 1
    fields = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {"at": pa.int64(), "key": pa.binary(), "value": pa.binary(), "partition": pa.int32()}
    return pa.Table.from_pylist(rows, pa.schema({**columns, "headers": pa.list_(fields)}))
