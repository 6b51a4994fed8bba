"""Option mapInArrow beside DataFrame.mapInArrow with the same function: the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

import mapped
from brokers.real_broker import Record, Topics, wait_until
from keyrange.model.ddl import parse_ddl
from spark.sources import batch, committed, run_available_now, stream

# A task for each range, several chunks in each partition, and several batches in each task.
SPLIT = {
    "splitBy": "keyRange",
    "keyRangesPerPartition": "2",
    "bytesPerTask": "0",
    "kafka.max.partition.fetch.bytes": "4000",
    "maxBatchRows": "20",
}


@pytest.fixture(scope="module", autouse=True)
def importable(spark: SparkSession) -> None:
    """The executors find the functions by name."""
    spark.sparkContext.addPyFile(mapped.__file__)


def by_option(function: Callable[..., Any], schema: str) -> dict[str, str]:
    return {"mapInArrow": f"mapped:{function.__name__}", "mapInArrowSchema": schema}


FOLD = by_option(mapped.fold, mapped.FOLDED)
CALL = by_option(mapped.call, mapped.CALLED)


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """600 records of 40 keys in two of three partitions; some have no key."""
    random = Random(0)
    topic = topics.create_topic("mapped", 3)
    keys = [random.randrange(40) for _ in range(600)]
    records = [
        Record(b"%06d" % n, b"key-%d" % key if key % 10 else None, key % 2)
        for n, key in enumerate(keys)
    ]
    topics.produce(topic, records, batch_size=1_000, linger_ms=20)
    return topic


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=str)


@pytest.mark.parametrize("given", [{}, {"splitBy": "offset", "parallelism": "5"}, SPLIT])
def test_a_batch_read_has_the_results_of_spark(
    spark: SparkSession, topics: Topics, topic: str, given: dict[str, str]
) -> None:
    ours = batch(spark, topics, topic, **given, **FOLD)
    frame = batch(spark, topics, topic, **given)
    assert ours.schema == frame.mapInArrow(mapped.fold, mapped.FOLDED).schema
    assert ours.rdd.getNumPartitions() == frame.rdd.getNumPartitions()
    found = rows(ours)
    if given.get("splitBy") != "offset":
        assert found == rows(frame.mapInArrow(mapped.fold, mapped.FOLDED))
    assert sum(len(row["offsets"]) for row in found) == 600


def test_every_key_comes_to_one_call_in_order(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    ours = batch(spark, topics, topic, **SPLIT, **FOLD)
    assert ours.rdd.getNumPartitions() > 2
    found = [row for row in ours.collect() if row["key"] is not None]
    assert len(found) == len({(row["partition"], row["key"]) for row in found}) == 36
    for row in found:
        assert row["offsets"] == sorted(row["offsets"])
        values = row["all values"].split()
        assert values == sorted(values)


def test_keys_and_values_have_their_types(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create_topic("typed", 1)
    topics.produce(topic, [Record(b'{"id": 7}', b"k"), Record(b'{"id": "x", "more": 1}', b"k")])
    typed = {"keyFormat": "string", "valueFormat": "json", "valueSchema": "id bigint"}
    given = {**typed, "columns": "key,value", "badValues": "column", "rescuedData": "left"}
    [called] = batch(spark, topics, topic, **given, **CALL).collect()
    value = "value struct<id: int64>"
    assert called["columns"] == f"key string; {value}; left string; _bad_value string"
    assert called["rows"] == 2
    bad = batch(spark, topics, topic, **typed, columns="value", **CALL)
    with pytest.raises(PySparkException, match=r"BAD_VALUE.*field id.*offset=1"):
        bad.collect()


def test_the_columns_are_those_that_were_asked_for(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    for given in ({}, {"columns": "offset,key"}, {"includeKeyHash": "true"}):
        ours = batch(spark, topics, topic, **given, **CALL).where("rows > 0")
        # Spark has timestamps of the session's time zone.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            frame = batch(spark, topics, topic, **given)
            expected = rows(frame.mapInArrow(mapped.call, mapped.CALLED).where("rows > 0"))
        finally:
            spark.conf.unset("spark.sql.session.timeZone")
        found = rows(ours)
        assert found == expected
        assert found[0]["columns"].count(";") == len(frame.columns) - 1


@pytest.mark.parametrize("given", [{}, {"bytesPerTask": "0"}, {"endingOffsets": "none"}])
def test_empty_tasks_are_calls_as_with_spark(
    spark: SparkSession, topics: Topics, topic: str, given: dict[str, str]
) -> None:
    """The third partition is empty; a read that ends where it starts has one task."""
    if "endingOffsets" in given:
        ends = f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}'
        given = {"startingOffsets": ends, "endingOffsets": ends}
    ours = [row["rows"] for row in rows(batch(spark, topics, topic, **given, **CALL))]
    frame = batch(spark, topics, topic, **given).mapInArrow(mapped.call, mapped.CALLED)
    assert ours == [row["rows"] for row in rows(frame)]
    assert 0 in ours or not given


def test_a_stream_has_the_results_of_spark(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "250", **SPLIT}

    def run(name: str, frame: DataFrame) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        run_available_now(
            frame, tmp_path / name, lambda batch, n: found.setdefault(n, rows(batch)) and None
        )
        assert committed(tmp_path / name) == sorted(found)
        return found

    ours = run("option", stream(spark, topics, topic, **given, **FOLD))
    frame = stream(spark, topics, topic, **given)
    assert ours == run("spark", frame.mapInArrow(mapped.fold, mapped.FOLDED))
    assert len(ours) > 2
    assert sum(len(row["offsets"]) for found in ours.values() for row in found) == 600


def test_a_stream_goes_into_a_table_in_memory(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    query = (
        stream(spark, topics, topic, startingOffsets="earliest", **SPLIT, **FOLD)
        .writeStream.format("memory")
        .queryName("folded")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    found = rows(spark.table("folded"))
    frame = batch(spark, topics, topic, **SPLIT).mapInArrow(mapped.fold, mapped.FOLDED)
    assert found == rows(frame)
    assert sum(progress.numInputRows for progress in query.recentProgress) == len(found)


def test_every_type_arrives(spark: SparkSession, topics: Topics, topic: str) -> None:
    ours = batch(spark, topics, topic, **by_option(mapped.typed, mapped.TYPED))
    frame = batch(spark, topics, topic).mapInArrow(mapped.typed, mapped.TYPED)
    assert ours.schema == frame.schema
    found = rows(ours)
    assert found == rows(frame)
    assert len(found) == 1_200
    whole = next(row for row in found if None not in tuple(row))
    assert whole["h"] == mapped.VALUES["h"]


@pytest.mark.parametrize(
    "ddl",
    [
        mapped.FOLDED,
        mapped.TYPED,
        "key: BINARY ,count:Bigint",
        "b byte, c short, g integer, h long, r real, t timestamp_ltz",
        "a decimal, b dec(5), c numeric ( 38 , 38 ), d DECIMAL(1,0)",
        "a array<array<map<string,struct<x: int, `y z` binary>>>>",
        "`a ``b`` ,` int, int int, array string, _1 double",
    ],
)
def test_ddl_is_read_as_spark_reads_it(spark: SparkSession, ddl: str) -> None:
    assert StructType.fromJson(parse_ddl(ddl)) == StructType.fromDDL(ddl)


def test_a_limit_closes_the_function(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("limited")
    path = tmp_path / "closed"
    topics.produce(topic, [str(path).encode()] * 20_000)
    given = by_option(mapped.row_by_row, "value binary")
    frame = batch(spark, topics, topic, columns="value", **given)
    assert len(frame.limit(3).collect()) == 3
    wait_until(path.exists)
    # The connection was in the middle of something.
    assert frame.count() == 20_000


ERRORS = [
    ({"mapInArrow": "no_such_module:fold"}, "MAP_FUNCTION_NOT_FOUND", "ModuleNotFoundError"),
    ({"mapInArrow": "mapped:FOLDED"}, "MAP_FUNCTION_UNFIT", "mapped:FOLDED is str"),
    ({"mapInArrow": "mapped:fails"}, "MAP_RESULT_MISMATCH", "mapInArrowSchema says [n int64]"),
    ({"mapInArrow": "mapped:longs"}, "MAP_RESULT_MISMATCH", "yielded [n int32]"),
    (
        {"mapInArrow": "mapped:fails", "columns": "offset", "mapInArrowSchema": "offset long"},
        "MAP_FUNCTION_FAILED",
        "LookupError: no such customer: 17",
    ),
]


def check_failure(failure: Exception, given: dict[str, str], condition: str, text: str) -> None:
    for part in (f"[{condition}] option mapInArrow: {given['mapInArrow']} ", text, "mend it:"):
        assert part in str(failure)


@pytest.mark.parametrize(("given", "condition", "text"), ERRORS)
def test_errors_reach_the_user(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    given: dict[str, str],
    condition: str,
    text: str,
) -> None:
    given = {"mapInArrowSchema": "n long", **given}
    with pytest.raises(PySparkException) as caught:
        batch(spark, topics, topic, **given).collect()
    check_failure(caught.value, given, condition, text)


# Of a stream the same code tells them; the last one comes from the function itself.
@pytest.mark.parametrize(
    ("given", "condition", "text"),
    [*(pytest.param(*each, marks=pytest.mark.slow) for each in ERRORS[:-1]), ERRORS[-1]],
)
def test_errors_of_a_stream_reach_the_user(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    given: dict[str, str],
    condition: str,
    text: str,
) -> None:
    given = {"mapInArrowSchema": "n long", **given}
    frame = stream(spark, topics, topic, startingOffsets="earliest", **given)
    with pytest.raises(StreamingQueryException) as failed:
        run_available_now(frame, tmp_path, lambda batch, _: batch.collect() and None)
    check_failure(failed.value, given, condition, text)


def test_options_are_refused_before_anything_is_read(spark: SparkSession, topics: Topics) -> None:
    given = {"mapInArrow": "mapped", "mapInArrowSchema": "n thing", "filterPushdown": "true"}
    with pytest.raises(PySparkException) as caught:
        batch(spark, topics, "none", **given)
    for name in given:
        assert f"option '{name}' " in str(caught.value)
