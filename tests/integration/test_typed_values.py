"""Keys and values with types, wherever keyrange hands records on: DataFrames, jobs with a function
and without, keyed state, mapInArrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import run
from commands.documents import read_document
from keyrange.errors import KeyrangeError
from project.forms import usually
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import options

TYPED = {
    "keyFormat": "string",
    "valueFormat": "json",
    "valueSchema": "id bigint, place struct<city string>, tags array<string>",
}
GOOD = b'{"id": 7, "place": {"city": "Bern"}, "tags": ["a", "b"]}'
MISFIT = b'{"id": "x", "more": 1.50}'


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def test_a_data_frame_has_typed_columns(job: TableJob, spark: SparkSession) -> None:
    job.produce(Record(GOOD, b"k1", 0), Record(None, b"k0", 0), Record(GOOD, b"k2", 1))
    given = options(job.topics, job.topic, **TYPED)
    frame = spark.read.format("keyrange").options(**given).load()
    types = dict(frame.dtypes)
    assert types["key"] == "string"
    assert types["value"] == "struct<id:bigint,place:struct<city:string>,tags:array<string>>"
    rows = frame.select("key", "value.place.city", "value.*").orderBy("key").collect()
    assert [tuple(row)[:3] for row in rows] == [
        ("k0", None, None),
        ("k1", "Bern", 7),
        ("k2", "Bern", 7),
    ]
    assert rows[1]["tags"] == ["a", "b"]
    # Two key ranges read side by side.
    given |= {"splitBy": "keyRange", "keyRangesPerPartition": "3", "columns": "value"}
    alone = spark.read.format("keyrange").options(**given).load()
    assert alone.columns == ["value"]
    assert alone.where("value.id = 7").count() == 2


def test_a_schema_in_a_file_is_read_once(job: TableJob, spark: SparkSession) -> None:
    job.produce(Record(GOOD, b"k1", 0))
    file = job.home / "schema.ddl"
    file.write_text(TYPED["valueSchema"])
    given = options(job.topics, job.topic, valueFormat="json", startingOffsets="earliest")
    given["columns"] = "value"
    given["valueSchema.location"] = str(file)
    frame = spark.read.format("keyrange").options(**given).load()
    writer = keyrange.job(given).into(str(job.table), str(job.checkpoint), spark=spark)
    file.unlink()
    assert [row.city for row in frame.select("value.place.city").collect()] == ["Bern"]
    with pytest.raises(PySparkException, match=r"valueSchema.location.*there is no such file"):
        spark.read.format("keyrange").options(**given).load()
    file.write_text("other bigint")
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    assert [row["id"] for row in job.rows()] == [7]


@pytest.mark.parametrize("policy", ["null", "fail", "column"])
def test_bad_values_of_a_data_frame(job: TableJob, spark: SparkSession, policy: str) -> None:
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0), Record(GOOD, b"\xff", 0))
    given = options(job.topics, job.topic, **TYPED, badValues=policy, columns="key,value")
    frame = spark.read.format("keyrange").options(**given).load()
    if policy == "fail":
        with pytest.raises(PySparkException, match=r"BAD_VALUE.*value: field id") as failed:
            frame.collect()
        assert f"partition={job.topic}-0, offset=1" in str(failed.value)
        return
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    assert [row["value"] and row["value"]["id"] for row in rows] == [7, None, 7]
    assert [row["key"] for row in rows] == ["k", "k", None]
    if policy == "column":
        assert [row["_bad_value"] for row in rows] == [
            None,
            "value: field id: a string is no int64, or out of its range",
            "key: not UTF-8",
        ]


@pytest.mark.parametrize("with_function", [False, True])
def test_a_job_keeps_bad_values_as_rows_that_say_why(job: TableJob, with_function: bool) -> None:
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0))

    def work(record: Any) -> Any:
        return record.offset, record.value and record.value.id, record["_bad_value"]

    given = [work, "offset bigint, id bigint, _bad_value string"] if with_function else []
    job.run(*given, **TYPED, badValues="column", columns="key,value,offset")
    assert [(row["offset"], row["id"], row["_bad_value"]) for row in job.rows()] == [
        (0, 7, None),
        (1, None, "value: field id: a string is no int64, or out of its range"),
    ]


def test_what_a_schema_lacks_is_rescued(job: TableJob) -> None:
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0), Record(b'{"id": 8}', b"k", 0))
    job.run(**TYPED, rescuedData="_rescued", columns="key,value,offset")
    found = [(row["key"], row["id"], row["_rescued"], row["offset"]) for row in job.rows()]
    assert found == [("k", 7, None, 0), ("k", None, '{"id":"x","more":1.50}', 1), ("k", 8, None, 2)]


@pytest.mark.parametrize("mode", ["record", "arrow"])
@pytest.mark.parametrize("keeps_state", [False, True], ids=["stateless", "state"])
def test_a_function_of_typed_records(
    job: TableJob, tmp_path: Path, mode: str, keeps_state: bool
) -> None:
    """A bad value is a dead letter with its bytes, and state is that of the key's bytes."""
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0), Record(GOOD, b"k", 0))

    def one(record: Any, state: Any = None) -> Any:
        seen = 1
        if state is not None:
            seen = state.seen.get(default=0) + 1
            state.seen.update(seen)
        place = record.value.place
        return (record.key, record.value.id, place.city, record.value["tags"], seen)

    def many(batch: Any, groups: Any = None, states: Any = None) -> Any:
        value = batch.column("value")
        place = value.field("place").field("city")
        names = ["key", "id", "city", "tags", "seen"]
        counts = pa.array(range(1, len(batch) + 1), pa.int64())
        columns = [batch["key"], value.field("id"), place, value.field("tags"), counts]
        rows = pa.RecordBatch.from_arrays(columns, names)
        if states is None:
            return rows
        return rows, pa.record_batch({"seen": pa.array([{"n": len(batch)}])})

    own = individual(tmp_path) | TYPED | {"badValues": "deadLetter", "splitBy": "keyRange"}
    state = {"seen": keyrange.ValueState("n bigint")} if keeps_state else None
    schema = "key string, id bigint, city string, tags array<string>, seen bigint"
    function = one if mode == "record" else many
    job.run(function, schema, mode=mode, state=state, **own)
    rows = job.rows()
    assert [(row["key"], row["id"], row["city"], row["tags"]) for row in rows] == [
        ("k", 7, "Bern", ["a", "b"])
    ] * 2
    assert sorted(row["seen"] for row in rows) == (
        [1, 1] if not keeps_state and mode == "record" else [1, 2]
    )
    letters = DeltaTable(tmp_path / "commits_dead_letters").to_pyarrow_table().to_pylist()
    assert [(each["offset"], each["key"], each["value"]) for each in letters] == [(1, b"k", MISFIT)]


@pytest.mark.parametrize("mode", usually("individual", "batch"))
def test_a_record_without_a_value_deletes_by_the_columns_of_its_key(
    job: TableJob, tmp_path: Path, mode: str
) -> None:
    given = {"keyFormat": "json", "keySchema": "id bigint", "columns": "value"}
    given |= {"valueFormat": "json", "valueSchema": "id bigint, n int"}
    given |= individual(tmp_path) if mode == "individual" else {}

    def produce(*sent: tuple[int, int | None]) -> None:
        for id, n in sent:
            value = None if n is None else b'{"id": %d, "n": %d}' % (id, n)
            job.produce(Record(value, b'{"id": %d}' % id, id % 2))

    produce((1, 1), (2, 1), (1, None), (3, 1), (3, None), (3, 2))
    job.run(into={"keys": ["id"]}, **given)
    assert sorted((row["id"], row["n"]) for row in job.rows()) == [(2, 1), (3, 2)]
    produce((2, None), (4, 1))
    job.run(into={"keys": ["id"]}, **given)
    assert sorted((row["id"], row["n"]) for row in job.rows()) == [(3, 2), (4, 1)]


def test_a_function_may_answer_with_the_value(job: TableJob) -> None:
    job.produce(Record(GOOD, b"k", 0))
    job.run(lambda record: record.value, TYPED["valueSchema"], **TYPED)
    (row,) = job.rows()
    assert (row["id"], row["place"], row["tags"]) == (7, {"city": "Bern"}, ["a", "b"])


def test_a_stream_of_bad_values_says_which(
    job: TableJob, spark: SparkSession, tmp_path: Path
) -> None:
    job.produce(Record(MISFIT, b"k", 0))
    given = options(job.topics, job.topic, **TYPED, columns="value", startingOffsets="earliest")
    stream = spark.readStream.format("keyrange").options(**given).load().writeStream
    stream = stream.option("checkpointLocation", str(tmp_path / "c")).format("noop")
    text = failure_of(stream.trigger(availableNow=True).start())
    assert "[BAD_VALUE]" in text
    assert f"partition={job.topic}-0, offset=0" in text


def test_a_command_prints_what_is_in_records(job: TableJob) -> None:
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0))
    servers = ("--bootstrap-servers", job.topics.cluster.bootstrap_servers, "--topic", job.topic)
    given = [part for name, value in TYPED.items() for part in ("--option", f"{name}={value}")]
    told = run("records", "--key", "k", "--output", "json", *servers, *given)
    first, second = map(read_document, told.stdout.splitlines())
    assert (first["key"], first["value"]["place"]) == ("k", {"city": "Bern"})
    assert second["value"] == MISFIT.decode()
    assert second["_bad_value"].startswith("value: field id: a string is no int64")
    table = run("records", "--key", "k", *servers, *given).stdout
    assert '"city": "Bern"' in table.replace("\n", " ")


def test_a_consumer_has_typed_records(job: TableJob, tmp_path: Path) -> None:
    job.produce(Record(GOOD, b"k", 0), Record(MISFIT, b"k", 0), Record(GOOD, b"k", 0))
    own = {"kafka.bootstrap.servers": job.topics.cluster.bootstrap_servers} | TYPED
    own |= {"commitTable": str(tmp_path / "commits"), "startingOffsets": "earliest"}
    with keyrange.Consumer(own | {"badValues": "null"}) as consumer:
        consumer.assign({(job.topic, 0): []})
        records: list[Any] = []
        wait_until(lambda: records.extend(consumer.poll_records()) or len(records) == 3)
        assert [each.value and each.value.place.city for each in records] == ["Bern", None, "Bern"]
        assert [each.key for each in records] == ["k"] * 3
        consumer.acknowledge(records)
    with keyrange.Consumer(own | {"commitGroup": "told", "badValues": "column"}) as consumer:
        consumer.assign({(job.topic, 0): []})
        told: list[Any] = []
        wait_until(lambda: told.extend(consumer.poll_records()) or len(told) == 3)
        assert [each.bad_value and each.bad_value[:15] for each in told] == [
            *(None, "value: field id", None)
        ]
    with keyrange.Consumer(own | {"commitGroup": "other"}) as consumer:
        consumer.assign({(job.topic, 0): []})
        with pytest.raises(KeyrangeError, match=r"BAD_VALUE.*offset=1"):
            wait_until(consumer.poll)
