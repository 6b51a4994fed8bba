"""`into_topic`: each row once for readers of committed records, the rows of a key in order,
wherever a driver or a sender ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.committed_records import committed_records
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics, kafka_is_before
from keyrange.errors import KeyrangeError
from keyrange.individual_commits import topic_output
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.jobs import topic_writer as topic_writer_module
from keyrange.kafka.transactional_producer import TransactionalProducer
from keyrange.sending.model import shards
from keyrange.sending.shard_sender import ShardSender
from project.forms import usually
from queries import topic_jobs
from queries.individual import failure_of
from queries.topic_jobs import PARTITIONS, TopicJob
from spark.sources import committed

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    NEEDS_TRANSACTIONS,
]

for module in (sys.modules[__name__], topic_jobs):
    cloudpickle.register_pickle_by_value(module)


@pytest.fixture(params=["batch", "individual"])
def job(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[TopicJob]:
    yield TopicJob(spark, topics, tmp_path, request.param)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(params=usually("tasks", "driver"))
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where senders run. Small batches are sent by the driver, which these all are."""
    if request.param == "tasks":
        monkeypatch.setattr(topic_output, "_SMALL_BYTES", 0)
        monkeypatch.setattr(shards, "_BYTES_PER_SENDER", 1)
    return str(request.param)


class Crash(RuntimeError):
    """The driver ends here."""


def dies(*_: Any) -> None:
    raise Crash("here")


def crash(
    job: TopicJob, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool
) -> None:
    """End a driver before a step of a batch or behind it."""
    whole = getattr(owner, step)

    def crashing(self: Any, *given: Any, **named: Any) -> Any:
        # What is said of no batch.
        begins = owner is DeltaCommitTable and given[0].batch_id < 0
        begins = begins or (owner is TransactionalProducer and not given[0])
        answer = whole(self, *given, **named) if begins or not before else None
        if begins:
            return answer
        raise Crash(f"at {step}")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crashing)
        assert f"at {step}" in failure_of(job.start())


def test_each_row_once_in_the_order_of_its_key(job: TopicJob, place: str) -> None:
    job.produce(*(f"{key}{number}" for number in range(30) for key in "abcde"))
    job.run()
    job.produce("a30*", "b30")
    job.run()
    assert job.rows() == {
        key: [f"{key}{number}" for number in range(30)]
        + {"a": ["a30*", "a30* again"], "b": ["b30"]}.get(key, [])
        for key in "abcde"
    }


@pytest.mark.parametrize(
    ("job", "owner", "step", "before", "has_manifest"),
    [
        ("individual", VerdictStore, "publish", True, False),
        ("individual", VerdictStore, "publish", False, True),
        ("individual", TransactionalProducer, "send", True, True),
        ("batch", TransactionalProducer, "send", False, True),
        ("individual", ShardSender, "send", False, True),
        ("individual", DeltaCommitTable, "append", True, True),
        ("individual", DeltaCommitTable, "append", False, True),
        pytest.param("batch", VerdictStore, "publish", True, False, marks=pytest.mark.slow),
        pytest.param("batch", VerdictStore, "publish", False, True, marks=pytest.mark.slow),
        pytest.param("batch", ShardSender, "send", False, True, marks=pytest.mark.slow),
    ],
    indirect=["job"],
    ids=lambda each: each.__name__ if isinstance(each, type) else str(each),
)
def test_each_row_once_wherever_the_driver_ends(
    job: TopicJob,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
    has_manifest: bool,
) -> None:
    job.produce("a1", "b1")
    job.run()
    job.produce("a2", "b2*", "c1")
    crash(job, monkeypatch, owner, step, before)
    assert committed(job.checkpoint) == [0]
    job.produce("a3")
    job.run("'")
    again = "" if has_manifest else "'"
    assert job.rows() == {
        "a": ["a1", f"a2{again}", "a3'"],
        "b": ["b1", f"b2*{again}", f"b2*{again} again"],
        "c": [f"c1{again}"],
    }


def test_a_row_that_the_topic_does_not_take_fails_its_record(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TopicJob(spark, topics, tmp_path, "individual")
    job.options |= {"maxDeliveries": "1"}
    job.produce("a1", "a" * 3_000, "a2")
    job.run(options={"kafka.max.request.size": 2_000})
    assert job.rows() == {"a": ["a1", "a2"]}
    [letter] = DeltaTable(str(tmp_path / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    assert letter["offset"] == 1
    assert "max.request.size is 2000" in letter["error"]
    assert "aaa" not in letter["error"]


@pytest.mark.parametrize(
    ("configs", "row", "said"),
    [
        ({"cleanup.policy": "compact"}, (None, "v", None), "it has no key"),
        pytest.param(
            # By default from 4.0 on.
            {"message.timestamp.after.max.ms": "3600000"},
            (b"k", "v", datetime(2100, 1, 1, tzinfo=UTC)),
            "ms ahead",
            # Brokers before take any time that is to come.
            marks=pytest.mark.skipif(kafka_is_before(3, 6), reason="KIP-937"),
        ),
        ({"max.message.bytes": "900"}, (b"k", "v" * 1_000, None), "max.message.bytes of the topic"),
    ],
)
def test_a_row_that_the_brokers_would_refuse_goes_to_the_dead_letters(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    configs: dict[str, str],
    row: tuple[Any, ...],
    said: str,
) -> None:
    job = TopicJob(spark, topics, tmp_path, "individual")
    job.options |= {"maxDeliveries": "1"}
    job.topic = topics.create_topic("strict", PARTITIONS, configs)

    def work(record: Any) -> Any:
        return row if record.value == b"bad" else (record.key, record.value.decode(), None)

    job.produce("a1", "bad", "a2")
    made = keyrange.job(job.options, work, "key binary, value string, timestamp timestamp")
    writer = made.into_topic(job.topic, str(job.checkpoint), spark=spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    assert job.rows() == {"a": ["a1", "a2"]}
    [letter] = DeltaTable(str(tmp_path / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    assert said in letter["error"]


def test_a_table_and_a_topic_of_one_read_have_each_row_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TopicJob(spark, topics, tmp_path, "individual")

    def both(record: Any) -> Any:
        return {"table": (record.offset,), "topic": (record.key, record.value)}

    def start() -> Any:
        schemas = {"table": "at long", "topic": "key binary, value binary"}
        places = {"table": str(tmp_path / "table"), "topic": keyrange.Topic(job.topic)}
        made = keyrange.job(job.options, both, schemas)
        writer = made.into(places, str(job.checkpoint), spark=spark)
        return writer.trigger(availableNow=True).start()

    job.produce("a1", "c1")
    assert start().awaitTermination(240)
    job.produce("a2")
    with monkeypatch.context() as patch:
        # The table has the batch, and the topic lacks it.
        patch.setattr(ShardSender, "send", dies)
        failure_of(start())
    assert start().awaitTermination(240)
    assert job.rows() == {"a": ["a1", "a2"], "c": ["c1"]}
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().column("at").to_pylist()
    assert sorted(rows) == [0, 1, 2]


def test_a_value_is_made_of_columns_as_json(job: TopicJob) -> None:
    job.produce("a1", "b2")

    def typed(record: Any) -> Any:
        return record.key, int(record.value[1:]), record.value.decode(), None

    columns = "key binary, n long, text string, left double"
    made = keyrange.job(job.options, typed, columns)
    topic = keyrange.Topic(job.topic, value_format="json")
    writer = made.into(topic, str(job.checkpoint), spark=job.spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    found = {key: [json.loads(each) for each in values] for key, values in job.rows().items()}
    assert found == {"a": [{"n": 1, "text": "a1"}], "b": [{"n": 2, "text": "b2"}]}


def test_records_are_copied_with_their_headers_times_and_tombstones(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TopicJob(spark, topics, tmp_path, "batch")
    headers = [("h", b"1"), ("h", b"")]
    sent = [Record(b"v", b"k", 0, 1_600_000_000_000, headers), Record(None, b"k", 0, 5)]
    topics.produce(job.source, sent)
    options = job.options | {"includeHeaders": "true", "columns": "key,value,headers,timestamp"}
    writer = keyrange.job(options).into_topic(job.topic, str(job.checkpoint), spark=spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    found = [each for part in committed_records(topics, job.topic, PARTITIONS) for each in part]
    assert [(each.key, each.value, each.timestamp, list(each.headers)) for each in found] == [
        (b"k", b"v", 1_600_000_000_000, headers),
        (b"k", None, 5, []),
    ]


def test_rows_name_their_topics(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = TopicJob(spark, topics, tmp_path, "batch")
    other = topics.create_topic("other", PARTITIONS)
    names = {b"a": job.topic, b"b": other}

    def routed(record: Any) -> Any:
        return names[record.key], record.key, record.value, 2

    job.produce("a1", "b1", "a2")
    columns = "topic string, key binary, value binary, partition int"
    made = keyrange.job(job.options, routed, columns)
    topic = keyrange.Topic(marks=job.topic)
    writer = made.into(topic, str(job.checkpoint), spark=spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    for name, values in ((job.topic, [b"a1", b"a2"]), (other, [b"b1"])):
        found = committed_records(topics, name, PARTITIONS)
        assert [each.value for each in found[2]] == values
        assert not any(found[:2])


def test_a_topic_that_is_not_there_fails_the_record_that_names_it(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TopicJob(spark, topics, tmp_path, "individual")
    job.options |= {"maxDeliveries": "1"}

    def routed(record: Any) -> Any:
        topic = "nowhere-to-be-found" if record.value == b"b1" else job_topic
        return topic, record.key, record.value, 9 if record.value == b"c1" else 0

    job_topic = job.topic
    job.produce("a1", "b1", "c1")
    made = keyrange.job(
        job.options, routed, "topic string, key binary, value binary, partition int"
    )
    topic = keyrange.Topic(marks=job.topic)
    writer = made.into(topic, str(job.checkpoint), spark=spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    assert job.rows() == {"a": ["a1"]}
    letters = DeltaTable(str(tmp_path / "commits_dead_letters")).to_pyarrow_table().to_pylist()
    said = sorted(each["error"].rpartition(": ")[2] for each in letters)
    assert said == ["its topic has 3 partitions", "its topic is not there"]


def test_what_kafka_has_forgotten_stops_the_query_until_somebody_has_looked(
    job: TopicJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.produce("a1")
    job.run()
    job.produce("a2")
    crash(job, monkeypatch, TransactionalProducer, "send", before=False)
    groups = [each["group_id"] for each in job.topics.admin.list_groups()]
    own = [name for name in groups if name.startswith("keyrange:") and name.endswith(":0")]
    job.topics.admin.delete_groups(own)
    assert "[TOPIC_OUTPUT_FORGOTTEN]" in failure_of(job.start())
    assert job.rows() == {"a": ["a1", "a2"]}
    job.run(if_forgotten="skip")
    job.produce("a3")
    job.run()
    assert job.rows() == {"a": ["a1", "a2", "a3"]}


def test_another_topic_is_refused_before_it_gets_a_row(job: TopicJob) -> None:
    job.produce("a1")
    job.run()
    other = job.topics.create_topic("other", 1)
    with pytest.raises(
        KeyrangeError, match=rf"OTHER_TOPIC.*topic {job.topic}, and is to .*{other}"
    ):
        job.writer(topic=other)


@pytest.mark.skipif(kafka_is_before(2, 8), reason="topics have no ids")
def test_a_topic_that_was_made_again_is_refused(job: TopicJob) -> None:
    job.produce("a1")
    job.run()
    job.topics.delete_topic(job.topic)
    job.topics.create_named(job.topic, PARTITIONS)
    with pytest.raises(KeyrangeError, match=r"OTHER_TOPIC.* was deleted and made again"):
        job.writer()
    assert job.rows() == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "not there"}, "is no name of a topic"),
        ({"topic": "the source"}, "is one that the query reads"),
        ({"topic": "not-there"}, r"UNKNOWN_TOPIC_OR_PARTITION.*not-there"),
        ({"schema": "key binary"}, r"INVALID_TOPIC_COLUMNS.*no column value"),
        ({"schema": "key long, value string"}, r"INVALID_TOPIC_COLUMNS.*column key is int64"),
        ({"schema": "topic string, value string"}, "the rows a column topic.*option columns"),
        ({"options": {"kafka.acks": "1"}}, "option 'kafka.acks' must be all"),
        ({"options": {"acks": "all"}}, "option 'acks'.*kafka.acks"),
        ({"compression": "zstd"}, "compression is for tables.*kafka.compression.type"),
        ({"source": {"splitBy": "offset"}}, "splitBy=offset cuts partitions by offsets"),
        ({"source": {"maxRecordsPerPartition": "9"}}, "maxRecordsPerPartition cuts"),
        ({"senders": 0}, "senders must be between 1 and 256"),
        ({"if_forgotten": "guess"}, "if_forgotten must be"),
    ],
)
def test_usual_mistakes_are_told_before_the_query_starts(
    spark: SparkSession, topics: Topics, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    job = TopicJob(spark, topics, tmp_path, "batch")
    if given.get("topic") == "the source":
        given = {"topic": job.source}
    job.options |= given.pop("source", {})
    with pytest.raises(KeyrangeError, match=said):
        job.writer(**given)


def test_rows_of_any_frame_are_sent_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    job = TopicJob(spark, topics, tmp_path, "batch")
    servers = {"kafka.bootstrap.servers": job.options["kafka.bootstrap.servers"]}

    def start(said: str = "") -> Any:
        read = spark.readStream.format("keyrange").options(**job.options).load()
        frame = read.selectExpr("key", f"concat(CAST(value AS STRING), '{said}') AS value")
        write = keyrange.topic_writer(job.topic, str(job.checkpoint), servers)
        writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(job.checkpoint)).start()

    job.produce(*(f"{key}{number}" for number in range(20) for key in "ab"))
    start().awaitTermination(240)
    job.produce("a20", "c0")
    with monkeypatch.context() as patch:
        patch.setattr(topic_writer_module.TopicOutput, "write", dies)
        failure_of(start())
    job.produce("a21")
    start("-2").awaitTermination(240)
    assert job.rows() == {
        "a": [*(f"a{number}" for number in range(21)), "a21-2"],
        "b": [f"b{number}" for number in range(20)],
        "c": ["c0"],
    }
