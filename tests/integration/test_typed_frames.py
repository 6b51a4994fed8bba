"""DataFrames with typed keys and values whose records are done one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange
from brokers.real_broker import Record, Topics
from queries.table_jobs import TableJob, individual
from spark.sources import options, run_available_now

TYPED = {
    "keyFormat": "string",
    "valueFormat": "json",
    "valueSchema": "id bigint, place struct<city string>, tags array<string>",
    "startingOffsets": "earliest",
    "splitBy": "keyRange",
}
GOOD = b'{"id": 7, "place": {"city": "Bern"}, "tags": ["a", "b"]}'
MISFIT = b'{"id": "x", "more": 1.50}'
PLACE = ("topic", "partition", "offset", "keyHash")


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


WAYS = ("record", "arrow", "selected", "error column", "reject")


@pytest.mark.parametrize("way", WAYS)
def test_a_typed_data_frame_gives_up_records_as_kafka_has_them(
    job: TableJob, tmp_path: Path, way: str
) -> None:
    """Whichever way the job says that a record is not done, and whether it could be read."""
    refused = b'{"id": 8, "tags": []}'
    job.produce(Record(GOOD, b"a", 0), Record(refused, b"b", 0), Record(MISFIT, b"c", 1))
    job.produce(Record(GOOD, b"\xff", 1), Record(None, b"d", 1), Record(GOOD, None, 1))
    sink = tmp_path / "sink"
    is_wrong = "value.id = 8 or _bad_value is not null"

    def one(record: Any) -> Any:
        if record["_bad_value"] or (record.value and record.value.id == 8):
            raise ValueError("not so")
        return (record.offset, record.value and record.value.place.city)

    def many(batch: Any) -> Any:
        value = batch.column("value")
        if any(batch["_bad_value"].to_pylist()) or 8 in value.field("id").to_pylist():
            raise ValueError("not so")
        city = pa.array([each and each["place"]["city"] for each in value.to_pylist()])
        return pa.RecordBatch.from_arrays([batch["offset"], city], ["offset", "city"])

    def body(batch: DataFrame, _: int) -> None:
        if way in ("record", "arrow"):
            function, schema = (one, many)[way == "arrow"], "offset bigint, city string"
            kept = keyrange.process(batch, function, schema, mode=way)
        elif way == "selected":
            # The function is given no bytes, and the batch has them.
            kept = batch.drop("_raw_key", "_raw_value", "key")
            kept = keyrange.process(kept, one, "offset bigint, city string")
        elif way == "error column":
            wrong = batch.withColumn("wrong", F.when(F.expr(is_wrong), "not so"))
            kept = keyrange.materialize(wrong, error_column="wrong")
        else:
            kept = keyrange.materialize(batch.select("value", *PLACE, "_bad_value"))
            bad = F.coalesce(F.expr(is_wrong), F.lit(False))
            keyrange.reject(kept.where(bad))
            kept = kept.where(~bad)
            keyrange.acknowledge(kept)
        kept.select("offset").write.format("delta").mode("append").save(str(sink))

    own = options(job.topics, job.topic, **TYPED, **individual(tmp_path), badValues="column")
    own |= {"maxDeliveries": "1"}
    frame = job.spark.readStream.format("keyrange").options(**own).load()
    assert dict(frame.dtypes)["_raw_value"] == dict(frame.dtypes)["_raw_key"] == "binary"
    run_available_now(frame, job.checkpoint, keyrange.each_batch(body, own, str(job.checkpoint)))
    assert sorted(DeltaTable(sink).to_pyarrow_table().column("offset").to_pylist()) == [0, 2, 3]
    letters = DeltaTable(tmp_path / "commits_dead_letters").to_pyarrow_table().to_pylist()
    found = sorted(
        (each["partition"], each["offset"], each["key"], each["value"]) for each in letters
    )
    assert found == [(0, 1, b"b", refused), (1, 0, b"c", MISFIT), (1, 1, b"\xff", GOOD)]


def test_a_typed_data_frame_without_its_bytes_is_refused(job: TableJob, tmp_path: Path) -> None:
    job.produce(Record(GOOD, b"a", 0))
    own = options(job.topics, job.topic, **TYPED, **individual(tmp_path))
    frame = job.spark.readStream.format("keyrange").options(**own).load().drop("_raw_value")
    body = keyrange.each_batch(lambda batch, _: None, own, str(job.checkpoint))
    with pytest.raises(StreamingQueryException, match=r"UNSUITABLE_FRAME.*'_raw_value'"):
        run_available_now(frame, job.checkpoint, body)


def test_a_typed_data_frame_names_no_dead_letters(job: TableJob, tmp_path: Path) -> None:
    given = options(job.topics, job.topic, **TYPED, **individual(tmp_path))
    with pytest.raises(PySparkException, match=r"badValues=column"):
        job.spark.readStream.format("keyrange").options(**given, badValues="deadLetter").load()
