"""Values that confluent-kafka's serializers wrote, read by Spark through a schema registry."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from queries.table_jobs import TableJob
from registries.confluent import avro, json_schema
from registries.framed import prefix
from registries.server import Registry, basic, schema_registry
from spark.sources import options

ORDER = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}}}'
NOTED = '{"title":"Order","type":"object","properties":{"note":{"type":"string"}}}'
AVRO = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
    '{"name":"gone","type":"string"}]}'
)
WIDER = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
LOGIN = {"schemaRegistry.user": "reader", "schemaRegistry.password": "env:KEYRANGE_TEST_REGISTRY"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    """At an address that was never used before: this host may keep schemas of others."""
    with schema_registry(base=f"/{uuid.uuid4().hex}") as made:
        yield made


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def written(registry: Registry, topic: str, schema: str, *values: Any) -> list[bytes]:
    return list(json_schema(registry.url, topic, schema, values).payloads)


def given(job: TableJob, registry: Registry, **more: str) -> dict[str, str]:
    typed = {"valueFormat": "json", "valueSchema": "id bigint, note string", "columns": "value"}
    asked = {"schemaRegistry.url": registry.url, "schemaRegistry.tries": "1"}
    return options(job.topics, job.topic, **typed, **asked, **more)


def test_a_data_frame_of_two_schemas(
    job: TableJob, spark: SparkSession, registry: Registry
) -> None:
    """Whatever the number of tasks, each schema is asked for once on this host."""
    old = written(registry, job.topic, ORDER, *({"id": at} for at in range(40)))
    new = written(registry, job.topic, NOTED, *({"note": f"n{at}"} for at in range(40)))
    for at, payload in enumerate([*old, *new]):
        job.produce(Record(payload, b"k", at % 2))
    registry.requests.clear()
    frame = spark.read.format("keyrange").options(**given(job, registry)).load()
    rows = [row["value"] for row in frame.collect()]
    assert sorted(row["id"] for row in rows if row["id"] is not None) == list(range(40))
    assert {row["note"] for row in rows if row["note"]} == {f"n{at}" for at in range(40)}
    asked = [path.removeprefix(registry.base) for path in registry.requests]
    assert sorted(asked) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_columns_of_a_json_schema_and_a_table_that_follows_it(
    job: TableJob, registry: Registry
) -> None:
    old = ORDER.replace('"integer"', '["integer","null"]')
    new = (
        '{"title":"Order","type":"object","properties":{"id":{"type":"integer"},'
        '"at":{"type":"string","format":"date-time"},'
        '"tags":{"type":"array","items":{"type":"string"}}}}'
    )
    own = {"valueFormat": "json", "schemaRegistry.url": registry.url, "columns": "value"}
    for payload in written(registry, job.topic, old, {"id": 1}, {"id": None}):
        job.produce(payload)
    job.run(**own)
    assert DeltaTable(job.table).schema().to_arrow().names == ["id"]
    [payload] = written(
        registry, job.topic, new, {"id": 2, "at": "2026-01-02T03:04:05Z", "tags": ["a"]}
    )
    job.produce(payload)
    job.run(into={"evolve": "add"}, **own)
    found = DeltaTable(job.table).to_pyarrow_table().to_pylist()
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert {"id": 2, "at": at, "tags": ["a"]} in found
    assert len(found) == 3


def test_columns_are_those_of_the_subjects_latest_schema(
    job: TableJob, spark: SparkSession, registry: Registry
) -> None:
    """Also of what was written by an older one; said by a header it is read with headers."""
    old = avro(registry.url, job.topic, AVRO, [{"id": 1, "gone": "x"}])
    new = avro(registry.url, job.topic, WIDER, [{"id": 2**40, "note": "a"}, {"id": 3}])
    told = avro(registry.url, job.topic, WIDER, [{"id": 4, "note": "b"}], in_header=True)
    for messages in (old, new, told):
        for payload, headers in zip(messages.payloads, messages.headers, strict=True):
            job.produce(Record(payload, b"k", 0, headers=headers))
    asked = {"schemaRegistry.url": registry.url, "valueFormat": "avro", "badValues": "column"}
    frame = spark.read.format("keyrange").options(**options(job.topics, job.topic, **asked)).load()
    assert dict(frame.dtypes)["value"] == "struct<id:bigint,note:string>"
    rows = frame.orderBy("offset").collect()
    assert [tuple(row["value"] or ()) for row in rows] == [(1, None), (2**40, "a"), (3, None), ()]
    assert "includeHeaders=true" in rows[3]["_bad_value"]
    asked["includeHeaders"] = "true"
    frame = spark.read.format("keyrange").options(**options(job.topics, job.topic, **asked)).load()
    assert tuple(frame.orderBy("offset").collect()[3]["value"]) == (4, "b")


def test_bad_values_and_a_registry_that_is_away(
    job: TableJob, spark: SparkSession, registry: Registry
) -> None:
    (good,) = written(registry, job.topic, ORDER, {"id": 1})
    avro = registry.register("other", '"string"')
    for payload in (good, prefix(77) + b"{}", prefix(avro) + b"{}", b"{}", b"", None):
        job.produce(Record(payload, b"k", 0))
    own = given(job, registry, badValues="column")
    frame = spark.read.format("keyrange").options(**own).load()
    rows = frame.collect()
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, *[None] * 5]
    assert [row["_bad_value"] and row["_bad_value"].split(";")[0] for row in rows] == [
        None,
        "value: schema 77 is not known to the registry",
        f"value: schema {avro} is of type AVRO, and JSON is read",
        "value: no magic byte: no serializer of a schema registry has written it",
        "value: it is empty: a schema's id has 5 bytes",
        None,
    ]
    registry.schemas[99] = registry.schemas[1]
    job.produce(Record(prefix(99) + b'{"id": 9}', b"k", 0))
    registry.faults = [503] * 40
    with pytest.raises(PySparkException, match=r"REGISTRY_UNREACHABLE.*status 503"):
        frame.collect()
    registry.faults = []
    assert frame.collect()[-1]["value"]["id"] == 9


def test_a_login_that_tasks_look_up_themselves(
    job: TableJob, spark: SparkSession, registry: Registry
) -> None:
    """The reference goes to them, and not what it stands for."""
    (good,) = written(registry, job.topic, ORDER, {"id": 1})
    job.produce(Record(good, b"k", 0))
    registry.login = basic("reader", "hunter2")
    frame = spark.read.format("keyrange").options(**given(job, registry), **LOGIN).load()
    with pytest.raises(PySparkException, match=r"SECRET_NOT_FOUND.*KEYRANGE_TEST_REGISTRY"):
        frame.collect()
    wrong = given(job, registry) | {**LOGIN, "schemaRegistry.password": "wrong-hunter2"}
    with pytest.raises(PySparkException, match="REGISTRY_DENIED") as failed:
        spark.read.format("keyrange").options(**wrong).load().collect()
    assert "hunter2" not in str(failed.value)
    right = wrong | {"schemaRegistry.password": "hunter2"}
    (row,) = spark.read.format("keyrange").options(**right).load().collect()
    assert row["value"]["id"] == 1
