"""Rows in a topic as Avro and as Protobuf: what kafka-python, fastavro and Google's library read of
them, and where a row goes that its schema cannot hold."""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from deltalake import DeltaTable
from google.protobuf import message_factory
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.committed_records import committed_records
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics
from keyrange.errors import KeyrangeError
from keyrange.formats.protobuf.descriptors import message_of
from keyrange.model.value_forms import Schema
from queries import topic_jobs
from queries.individual import failure_of
from queries.topic_jobs import PARTITIONS, TopicJob
from registries.framed import prefix
from registries.server import Registry, schema_registry
from samples.avro_samples import header_of
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    NEEDS_TRANSACTIONS,
]

for module in (sys.modules[__name__], topic_jobs):
    cloudpickle.register_pickle_by_value(module)

AVRO: Any = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            ],
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": "string", "default": "-"},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
package shop;
message Other { string a = 1; }
message Order {
  message Line { sint32 count = 1; }
  enum Kind { NEW = 0; PAID = 1; }
  int32 id = 1;
  optional Kind kind = 4;
  google.protobuf.Timestamp at = 5;
  repeated string tags = 6;
  map<string, Line> lines = 7;
}
"""
AT = datetime(2024, 2, 29, 12, 0, 0, 1_000, tzinfo=UTC)
COLUMNS = "key binary, id long, kind string, price decimal(10,2), at timestamp, tags array<string>"
# Of each record by its value, what its row has that no schema takes; all other rows fit.
WRONG: dict[str, dict[str, Any]] = {
    "a2": {"id": 2**31},
    "a3": {"id": None},
    "b2": {"kind": "LOST"},
    "b3": {"tags": ["x", None]},
    "c2": {"price": Decimal("12345.67")},
}


def order(record: Any) -> dict[str, Any]:
    text = record.value.decode()
    row = {"key": record.key, "id": int(text[1:]), "kind": "PAID", "price": Decimal("-1.50")}
    return row | {"at": AT, "tags": [text, "é"]} | WRONG.get(text, {})


@pytest.fixture
def registry() -> Iterator[Registry]:
    """At an address that was never used before: this host may keep schemas of others."""
    with schema_registry(base=f"/{uuid.uuid4().hex}") as made:
        yield made


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[TopicJob]:
    made = TopicJob(spark, topics, tmp_path, "individual")
    made.options |= {"maxDeliveries": "1"}
    yield made
    for query in spark.streams.active:
        query.stop()


def written(job: TopicJob) -> list[Any]:
    found = committed_records(job.topics, job.topic, PARTITIONS)
    return [each for part in found for each in part]


def run(job: TopicJob, schema: str = COLUMNS, function: Any = order, **of_topic: Any) -> None:
    made = keyrange.job(job.options, function, schema)
    writer = made.into_topic(job.topic, str(job.checkpoint), spark=job.spark, **of_topic)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)


def letters(job: TopicJob) -> set[str]:
    """What dead letters say, behind what all of them do."""
    table = DeltaTable(str(job.home / "commits_dead_letters")).to_pyarrow_table()
    return {each.rpartition("no record of the topic: ")[2] for each in table["error"].to_pylist()}


def asked(registry: Registry, **more: str) -> dict[str, str]:
    return {"schemaRegistry.url": registry.url, "schemaRegistry.tries": "1", **more}


def test_avro_by_the_schema_of_a_registry(job: TopicJob, registry: Registry) -> None:
    """And rows that it cannot hold are dead letters, behind which the query goes on."""
    registry.register(f"{job.topic}-value", '"string"')
    id = registry.register(f"{job.topic}-value", json.dumps(AVRO))
    registry.register(f"{job.topic}-key", '"bytes"')
    job.produce("a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2")
    run(job, value_format="avro", options=asked(registry))
    job.produce("a4")
    run(job, value_format="avro", options=asked(registry))
    records = written(job)
    assert {each.value[:5] for each in records} == {prefix(id)}
    parsed = fastavro.parse_schema(AVRO)
    read = {
        each.key: fastavro.schemaless_reader(io.BytesIO(each.value[5:]), parsed, None)
        for each in records
    }
    fixed = {"kind": "PAID", "price": Decimal("-1.50"), "at": AT, "note": "-"}
    assert sorted(each["id"] for each in read.values()) == [1, 1, 4]
    assert read[b"a"] == {"id": 4, "tags": ["a4", "é"], **fixed}
    assert read[b"c"] == {"id": 1, "tags": ["c1", "é"], **fixed}
    assert len(records) == 4
    assert letters(job) == {
        "value: column id is out of the range of int",
        "value: column id is null, and the schema has no place for that",
        "value: column kind is no symbol of enum shop.Kind",
        "value: column tags[] is null, and the schema has no place for that",
        "value: column price has more than 6 digits, 2 of them behind the point",
    }
    given = options(job.topics, job.topic, valueFormat="avro", **asked(registry))
    frame = job.spark.read.format("keyrange").options(**given).load().select("value.*")
    assert sorted(row["id"] for row in frame.collect()) == [1, 1, 1, 4]


def test_protobuf_that_is_registered_with_keys_of_avro(job: TopicJob, registry: Registry) -> None:
    columns = "key struct<n: long>, id long, kind string, at timestamp, tags array<string>, "
    columns += "lines map<string, struct<count: int>>"

    def row(record: Any) -> dict[str, Any]:
        found = order(record)
        found.pop("price")
        lines = {record.value.decode(): {"count": -7}}
        return found | {"key": {"n": found["id"]}, "lines": lines}

    job.produce("a1", "a2", "b2", "c5")
    run(
        job,
        columns,
        row,
        value_format="protobuf",
        value_schema=PROTO,
        key_format="avro",
        options=asked(registry, valueMessage="Order", **{"schemaRegistry.autoRegister": "true"}),
    )
    [stored] = registry.subjects[f"{job.topic}-value"]
    assert (stored.document["schemaType"], stored.document["schema"]) == ("PROTOBUF", PROTO)
    [key] = registry.subjects[f"{job.topic}-key"]
    key_schema = fastavro.parse_schema(json.loads(key.document["schema"]))
    assert letters(job) == {
        "value: column id is out of the range of int32",
        "value: column kind is no name of enum Kind",
    }
    found = {}
    made = message_factory.GetMessageClass(message_of(Schema(PROTO, "Order")))
    for each in written(job):
        # The second message of the file.
        assert each.value[:7] == prefix(stored.id) + b"\2\2"
        assert each.key[:5] == prefix(key.id)
        read = made.FromString(each.value[7:])
        n = fastavro.schemaless_reader(io.BytesIO(each.key[5:]), key_schema, None)["n"]
        lines = {name: line.count for name, line in read.lines.items()}
        found[n] = (read.id, read.kind, read.at.ToDatetime(UTC), list(read.tags), lines)
    assert found == {
        1: (1, 1, AT, ["a1", "é"], {"a1": -7}),
        5: (5, 1, AT, ["c5", "é"], {"c5": -7}),
    }


def test_what_is_read_by_a_registry_is_written_by_it(job: TopicJob, registry: Registry) -> None:
    """A job without a function turns JSON into Avro by a schema of its columns, and a tombstone
    stays one."""
    schema = '{"title":"O","type":"object","properties":{"id":{"type":"integer"}}}'
    id = registry.register(f"{job.source}-value", schema, "JSON")
    values = [prefix(id) + json.dumps({"id": at}).encode() for at in range(3)]
    job.topics.produce(job.source, [Record(each, b"k", 0) for each in (*values, None)])
    given = {"valueFormat": "json", "columns": "key,value", **asked(registry)}
    made = keyrange.job(job.options | given)
    register = {"schemaRegistry.url": registry.url, "schemaRegistry.autoRegister": True}

    def into(**more: Any) -> Any:
        given = {"value_format": "avro", "spark": job.spark, **more}
        return made.into_topic(job.topic, str(job.checkpoint), **given)

    with pytest.raises(KeyrangeError, match=r"REGISTRY_SUBJECT_UNKNOWN.*40401|not found"):
        into()
    registry.faults = [409]
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SCHEMA_REFUSED.*said by"):
        into(options=register)
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SCHEMA_UNKNOWN.*not found"):
        into(value_schema=json.dumps(AVRO | {"fields": AVRO["fields"][:1]}))
    assert f"{job.topic}-value" not in registry.subjects
    writer = into(options=register)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    [stored] = registry.subjects[f"{job.topic}-value"]
    parsed = fastavro.parse_schema(json.loads(stored.document["schema"]))
    *found, last = (each.value for each in written(job))
    assert {each[:5] for each in found} == {prefix(stored.id)}
    read = [fastavro.schemaless_reader(io.BytesIO(each[5:]), parsed, None) for each in found]
    assert read == [{"id": at} for at in range(3)]
    assert last is None


def test_rows_of_any_frame_as_avro_that_names_its_schema(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TopicJob(spark, topics, tmp_path, "batch")
    servers = {"kafka.bootstrap.servers": job.options["kafka.bootstrap.servers"]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    told = servers | {"valueSchema.location": str(tmp_path / "r.avsc")}
    target = keyrange.Topic(job.topic, told, value_format="avro")

    def start(column: str) -> Any:
        read = spark.readStream.format("keyrange").options(**job.options).load()
        number = f"CAST(substr(CAST(value AS STRING), 2) AS {column})"
        value = f"CASE WHEN value = 'a0' THEN NULL ELSE struct({number} AS n) END AS value"
        write = keyrange.topic_writer(target, str(job.checkpoint))
        frame = read.selectExpr("key", value)
        writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(job.checkpoint)).start()

    job.produce("a1", "a0", "b2")
    assert start("INT").awaitTermination(240)
    header = header_of(schema)
    values = sorted((each.key, each.value) for each in written(job) if each.value is not None)
    assert values == [(b"a", header + b"\2"), (b"b", header + b"\4")]
    assert [each.key for each in written(job) if each.value is None] == [b"a"]
    job.produce(f"b{2**31}")
    said = failure_of(start("LONG"))
    assert "[INVALID_RECORD]" in said
    assert "column n is out of the range of int" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value_format": "xml"}, "value_format must be one of raw, json, avro, protobuf"),
        ({"value_format": "avro"}, "needs value_schema, valueSchema.location or a registry"),
        ({"value_schema": '"int"'}, "needs value_format avro or protobuf"),
        ({"key_format": "avro", "key_schema": '"int"'}, "column key is binary.*int there|it is"),
        ({"value_format": "avro", "value_schema": "{"}, "INVALID_TOPIC_COLUMNS.*not JSON"),
        (
            {"value_format": "avro", "value_schema": json.dumps(AVRO | {"fields": []})},
            "column id is no field of record shop.Order",
        ),
        ({"value_format": "protobuf", "value_schema": PROTO}, "column id is no field of .*Other"),
        ({"options": {"avroEncoding": "binary"}}, "needs value_format or key_format avro"),
        ({"options": {"valueMessage": "A"}}, "needs value_format protobuf"),
        ({"options": {"schemaRegistry.autoRegister": "true"}}, "needs schemaRegistry.url"),
        ({"options": {"valueSubject": "s"}}, "needs schemaRegistry.url"),
        ({"options": {"valueSchemas": "s"}}, "option 'valueSchemas' is not a property"),
    ],
)
def test_usual_mistakes_are_told_before_the_query_starts(
    job: TopicJob, given: dict[str, Any], said: str
) -> None:
    made = keyrange.job(job.options, order, COLUMNS)
    with pytest.raises(KeyrangeError, match=said):
        made.into_topic(job.topic, str(job.checkpoint), spark=job.spark, **given)
