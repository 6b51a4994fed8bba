"""Topics with records that look like real ones: short keys, and JSON that compresses like JSON."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

KEY_BYTES = 12
# What the values of `objects` hold.
OBJECT = (
    "carrier string, flight int, tailnum string, origin string, dest string, time timestamp, "
    "delay int, distance int, trace string, note string"
)
# As many has one event as JSON.
EVENT_BYTES = 190


def create_topic(
    bootstrap_servers: str, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic whose unique name begins with `name`, and wait until it can be written to."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))])
        while topic not in admin.list_topics():
            time.sleep(0.05)
    finally:
        admin.close()
    return topic


def filled(
    bootstrap_servers: str,
    name: str,
    frame: DataFrame,
    partitions: int,
    codec: str = "none",
    configs: Mapping[str, str] | None = None,
    producer: Mapping[str, str] | None = None,
) -> str:
    """A topic as of `create_topic` with the records of a frame as of `fill`."""
    topic = create_topic(bootstrap_servers, name, partitions, configs)
    fill(frame, bootstrap_servers, topic, codec, producer)
    return topic


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic, so that what it holds does not push others out of the page cache."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()


def records(spark: SparkSession, rows: int, value_bytes: int, partitions: int) -> DataFrame:
    """Columns id, key, value and partition for Spark's Kafka sink; values have `value_bytes`."""
    count = max(value_bytes // EVENT_BYTES, 1)
    events = ", ',', ".join(_event(f"id * {count} + {number}") for number in range(count))
    return spark.range(0, rows, 1, 2).selectExpr(
        "id",
        "concat('key-', lpad(pmod(hash(id), 1000000), 8, '0')) AS key",
        f"concat(rpad(concat('[', {events}, ',\"'), {value_bytes - 2}, 'late aircraft, '), '\"]')"
        " AS value",
        f"CAST(id % {partitions} AS INT) AS partition",
    )


def objects(spark: SparkSession, rows: int, value_bytes: int, partitions: int) -> DataFrame:
    """The same with values that are JSON objects, each one event (`OBJECT`)."""
    event = f"concat({_event('id')})"
    opened = f'concat(left({event}, length({event}) - 1), \',"note":"\')'
    value = f"concat(rpad({opened}, {value_bytes - 2}, 'late aircraft, '), '\"}}')"
    frame = records(spark, rows, value_bytes, partitions)
    return frame.selectExpr("id", "key", f"{value} AS value", "partition")


def _event(number: str) -> str:
    """SQL for one event: words that repeat, numbers that vary, and a trace id that is random."""

    def some(values: str, seed: int) -> str:
        names = ", ".join(f"'{value}'" for value in values.split())
        count = len(values.split())
        return f"element_at(array({names}), pmod(hash({number}, {seed}), {count}) + 1)"

    def figure(most: int, seed: int) -> str:
        return f"pmod(hash({number}, {seed}), {most})"

    airports = "EWR JFK LGA IAH MIA BQN ATL ORD FLL IAD MCO PBI TPA LAX SFO DFW BOS LAS MSP DTW"
    parts = [
        '\'{"carrier":"\'',
        some("UA AA B6 DL EV MQ US WN VX FL", 1),
        '\'","flight":\'',
        figure(9000, 2),
        '\',"tailnum":"N\'',
        figure(99999, 3),
        '\'","origin":"\'',
        some(airports, 4),
        '\'","dest":"\'',
        some(airports, 5),
        '\'","time":"2013-07-\'',
        f"lpad({figure(28, 6)} + 1, 2, '0')",
        "'T'",
        f"lpad({figure(24, 7)}, 2, '0')",
        '\':00:00Z","delay":\'',
        figure(180, 8),
        "',\"distance\":'",
        figure(2700, 9),
        '\',"trace":"\'',
        f"hex(xxhash64({number}))",
        "'\"}'",
    ]
    return ", ".join(parts)


def fill(
    frame: DataFrame,
    bootstrap_servers: str,
    topic: str,
    codec: str,
    producer: Mapping[str, str] | None = None,
) -> None:
    """Write a frame of records with Kafka's Java producer, through Spark's sink."""
    writer = (
        frame.select("key", "value", "partition")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.compression.type", codec)
        .option("kafka.batch.size", "65536")
        .option("topic", topic)
    )
    for name, value in (producer or {}).items():
        writer = writer.option(f"kafka.{name}", value)
    writer.save()
