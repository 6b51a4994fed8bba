"""Batch reads of real topics: splits, codecs, large records, errors. Positions, rows and schema are
those of the JVM connector, beside which tests/parity reads."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from brokers.real_broker import Record, Topics
from project.forms import by_form
from spark.sources import batch, options


@pytest.fixture(scope="module")
def three(topics: Topics) -> str:
    """A topic of three partitions with 10, 20 and 0 records."""
    topic = topics.create_topic("three", 3)
    topics.produce(topic, [Record(b"a%d" % n, b"k%d" % n, 0) for n in range(10)])
    topics.produce(topic, [Record(b"b%d" % n, b"k%d" % n, 1) for n in range(20)])
    return topic


def test_small_partitions_share_a_task(spark: SparkSession, topics: Topics, three: str) -> None:
    """A Python task costs more than reading 30 records."""
    assert batch(spark, topics, three).rdd.getNumPartitions() == 1
    assert batch(spark, topics, three, minTasks="2").rdd.getNumPartitions() == 2
    # One of the partitions is empty: a later use of the DataFrame may find records in it.
    assert batch(spark, topics, three, bytesPerTask="0").rdd.getNumPartitions() == 3


def test_min_partitions_cuts_ranges(spark: SparkSession, topics: Topics, three: str) -> None:
    frame = batch(spark, topics, three, minPartitions="6")

    assert frame.rdd.getNumPartitions() == 6
    places = frame.select("partition", "offset").collect()
    assert len(places) == len(set(places)) == 30


def test_codecs(spark: SparkSession, topics: Topics) -> None:
    sent = [b"%d " % n * (n % 300) for n in range(2_000)]
    names = {codec: topics.create_topic(codec) for codec in ("gzip", "snappy", "lz4", "zstd")}
    for codec, topic in names.items():
        topics.produce(topic, sent, compression_type=codec, linger_ms=20)

    frame = batch(spark, topics, ",".join(names.values()))
    rows = sorted(frame.select("topic", "offset", "value").collect())

    for codec, topic in names.items():
        assert [bytes(row["value"]) for row in rows if row["topic"] == topic] == sent, codec
    assert len(rows) == 4 * len(sent)


def test_large_and_small_records(spark: SparkSession, topics: Topics) -> None:
    """A record larger than the fetch size is still read; from 1 byte to 50 MB in the long form."""
    topic = topics.create_topic("large", configs={"max.message.bytes": str(60 << 20)})
    sizes = [1, 1 << 20, 3, by_form(20, 20, 50) << 20, 10]
    for size in sizes:
        topics.produce(topic, [b"x" * size], max_request_size=60 << 20)

    frame = batch(spark, topics, topic, **{"kafka.max.partition.fetch.bytes": "65536"})
    rows = frame.selectExpr("offset", "length(value) AS size").orderBy("offset").collect()

    assert [row["size"] for row in rows] == sizes


def test_a_record_batch_above_the_bound_is_refused(spark: SparkSession, topics: Topics) -> None:
    """It is named with its place and the option that allows it; nothing is skipped."""
    topic = topics.create_topic("bound", configs={"max.message.bytes": str(8 << 20)})
    topics.produce(topic, [b"small", b"x" * (4 << 20)], max_request_size=8 << 20)

    with pytest.raises(PySparkException) as failure:
        batch(
            spark,
            topics,
            topic,
            maxRecordBatchBytes="2m",
            **{"kafka.max.partition.fetch.bytes": "100000"},
        ).count()

    text = str(failure.value)
    assert "[BATCH_TOO_LARGE]" in text
    assert f"topic={topic}, partition=0, offset=" in text
    assert "maxRecordBatchBytes" in text


def test_out_of_range_start_is_data_loss(spark: SparkSession, topics: Topics) -> None:
    """The error names partition, offsets, remedy; failOnDataLoss=false reads what is left."""
    topic = topics.create_topic("retention")
    topics.produce(topic, [b"%d" % n for n in range(20)])
    topics.delete_records(topic, {0: 15})
    start = f'{{"{topic}": {{"0": 3}}}}'

    with pytest.raises(PySparkException) as failure:
        batch(spark, topics, topic, startingOffsets=start).count()
    lenient = batch(spark, topics, topic, startingOffsets=start, failOnDataLoss="false").count()

    text = str(failure.value)
    assert "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE" in text
    assert f"offsets [3, 20) of topic partition {topic}-0" in text
    assert "failOnDataLoss=false" in text
    assert lenient == 5


def test_starting_offsets_must_name_every_partition(
    spark: SparkSession, topics: Topics, three: str
) -> None:
    with pytest.raises(PySparkException) as failure:
        batch(spark, topics, three, startingOffsets=f'{{"{three}": {{"0": 3, "7": 1}}}}').count()

    text = str(failure.value)
    assert "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED" in text
    assert f"missing={three}-1, {three}-2" in text
    assert f"unknown={three}-7" in text


def test_all_wrong_options_at_load(spark: SparkSession, topics: Topics) -> None:
    given = options(topics, "t", minPartitions="0", includeHeader="true", failOnDataLoss="maybe")
    given["kafka.fetch.min.byte"] = "1"

    with pytest.raises(PySparkException) as failure:
        spark.read.format("keyrange").options(**given).load()

    text = str(failure.value)
    assert "INVALID_OPTIONS" in text
    for expected in (
        "option 'minPartitions' must be between 1 and 2147483647, not 0",
        "did you mean 'includeHeaders'?",
        "option 'failOnDataLoss' must be true or false, not 'maybe'",
        "did you mean 'kafka.fetch.min.bytes'?",
    ):
        assert expected in text


def test_secrets_are_not_in_plans(spark: SparkSession, topics: Topics, three: str) -> None:
    secret = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    secret |= {"kafka.sasl.username": "alice", "kafka.sasl.password": "wrong-secret-42"}
    given = options(topics, three, **secret)
    given["kafka.bootstrap.servers"] = topics.cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    frame = spark.read.format("keyrange").options(**given).load()

    with pytest.raises(PySparkException) as failure:
        frame.count()
    plan = frame._jdf.queryExecution().analyzed().toString()

    assert "SASL_AUTHENTICATION_FAILED" in str(failure.value)
    assert "wrong-secret-42" not in str(failure.value)
    assert "wrong-secret-42" not in plan


def test_a_data_frame_that_is_used_again_sees_what_was_written_meanwhile(
    spark: SparkSession, topics: Topics
) -> None:
    """Latest is asked for by the tasks; a fixed end stays where it is."""
    topic = topics.create_topic("late", 2)
    topics.produce(topic, [Record(b"1", partition=0)])
    frame = batch(spark, topics, topic)
    fixed = batch(spark, topics, topic, endingOffsets=f'{{"{topic}":{{"0":1,"1":-1}}}}')
    assert (frame.count(), fixed.count()) == (1, 1)

    topics.produce(topic, [Record(b"2", partition=number) for number in (0, 1)])

    assert (frame.count(), fixed.count()) == (3, 2)
    assert frame.union(frame).count() == 6


def test_a_data_frame_with_an_ending_time_never_reads_behind_it(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create_topic("late_timed")
    topics.produce(topic, [Record(b"1", timestamp_ms=1_000)])
    frame = batch(spark, topics, topic, endingTimestamp="2000")
    assert frame.count() == 1

    topics.produce(topic, [Record(b"2", timestamp_ms=2_000), Record(b"3", timestamp_ms=3_000)])

    assert frame.count() == 1


@pytest.fixture(scope="module")
def timed(topics: Topics) -> str:
    """Three partitions; record n of each was written at n seconds."""
    topic = topics.create_topic("timed", 3)
    topics.produce(
        topic,
        [
            Record(b"x", partition=number, timestamp_ms=n * 1_000)
            for number in range(3)
            for n in range(10)
        ],
    )
    return topic


def test_the_rest_of_the_partitions_starts_at_the_default(
    spark: SparkSession, topics: Topics, timed: str
) -> None:
    given = {"startingOffsets": f'{{"{timed}":{{"1":9}}}}', "startingOffsetsDefault": "earliest"}
    assert batch(spark, topics, timed, **given).count() == 21


def test_an_assigned_partition_that_is_not_there_is_named(
    spark: SparkSession, topics: Topics, timed: str
) -> None:
    given = {"kafka.bootstrap.servers": topics.cluster.bootstrap_servers}
    given["assign"] = f'{{"{timed}":[0,9]}}'
    with pytest.raises(PySparkException, match=rf"UNKNOWN_TOPIC_OR_PARTITION.*{timed}-9"):
        spark.read.format("keyrange").options(**given).load().count()


def test_a_task_has_no_more_records_than_allowed(
    spark: SparkSession, topics: Topics, timed: str
) -> None:
    frame = batch(spark, topics, timed, maxRecordsPerPartition="4")
    assert frame.rdd.getNumPartitions() == 9
    sizes = Counter(row[0] for row in frame.select(spark_partition_id()).collect())
    assert sorted(sizes.values()) == [3, 3, 3, 3, 3, 3, 4, 4, 4]


def test_a_topic_as_a_view_of_sql(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create_topic("view")
    topics.produce(topic, [b"x"] * 3)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW keyrange_view USING keyrange OPTIONS ("
        f"`kafka.bootstrap.servers` '{topics.cluster.bootstrap_servers}', subscribe '{topic}')"
    )

    assert spark.table("keyrange_view").count() == 3
