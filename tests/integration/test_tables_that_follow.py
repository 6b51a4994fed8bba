"""`into(..., evolve="add")` beside a schema that changes while the query runs: the column comes
with the first batch that has it, wherever the driver ends."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers.real_broker import Record, Topics, wait_until
from captured.source_table import Source, Written, json_with_schemas
from keyrange.storage.sink_table import SinkTable
from project.forms import usually
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual
from registries.confluent import avro
from registries.server import Registry, schema_registry

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}%s]}'
NOTE = ',{"name":"note","type":["null","string"],"default":null}'
# Of how long ago the last answer may be: that of a registry, and that of records.
ASKED_S, LOOKED_S = 1.1, 5.1
RUNS = {"processingTime": "0 seconds"}
KEYED: dict[str, Any] = {"keys": ["id"], "evolve": "add"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry(base=f"/{uuid.uuid4().hex}") as made:
        yield made


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[TableJob]:
    made = TableJob(spark, topics, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


class Orders:
    """Orders in Avro, and a job that follows their schema."""

    def __init__(self, job: TableJob, registry: Registry, **given: str) -> None:
        self.job, self.registry = job, registry
        self.given = {"valueFormat": "avro", "schemaRegistry.url": registry.url, "columns": "value"}
        self.given |= {"schemaRegistry.tries": "1", **given}
        self.into: dict[str, Any] = {"evolve": "add"}

    def write(self, more: str, *orders: Any) -> None:
        self.send(avro(self.registry.url, self.job.topic, AVRO % more, orders).payloads)

    def send(self, payloads: Sequence[bytes]) -> None:
        self.job.produce(
            *(Record(each, str(at).encode(), at % 2) for at, each in enumerate(payloads))
        )

    def start(self) -> StreamingQuery:
        return self.job.start(into=self.into, trigger=RUNS, **self.given)

    def started(self, rows: list[Any]) -> StreamingQuery:
        """A query whose table has these rows."""
        query = self.start()
        wait_until(lambda: DeltaTable.is_deltatable(str(self.job.table)))
        has(query, self.rows, rows)
        return query

    def run(self) -> None:
        self.job.run(into=self.into, **self.given)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row.get("note", "no column")) for row in self.job.rows())


def has(query: StreamingQuery, rows: Callable[[], Any], wanted: Any) -> None:
    """Until a query that runs has written what is wanted."""
    wait_until(lambda: rows() == wanted or query.exception() is not None)
    assert query.exception() is None
    assert rows() == wanted


@pytest.mark.parametrize("how", usually("pinned", "keys", "batch", "individual"))
def test_a_field_of_a_schema_that_is_registered_while_the_query_runs(
    job: TableJob, registry: Registry, how: str
) -> None:
    orders = Orders(job, registry)
    if how in ("individual", "pinned"):
        ranges = {"splitBy": "keyRange", "keyRangesPerPartition": "2"}
        orders.given |= individual(job.home, **ranges)
    if how == "pinned":
        orders.given |= {"pin": "prefer", "expansion.timeout.ms": "500"}
    if how == "keys":
        orders.into |= {"keys": ["id"]}
    orders.write("", {"id": 1}, {"id": 2})
    query = orders.started([(1, "no column"), (2, "no column")])
    time.sleep(ASKED_S)
    orders.write(NOTE, {"id": 3, "note": "a"}, {"id": 4, "note": "b"})
    has(query, orders.rows, [(1, None), (2, None), (3, "a"), (4, "b")])
    # A registry that is away stops nothing.
    time.sleep(ASKED_S)
    made = avro(registry.url, job.topic, AVRO % NOTE, [{"id": 5, "note": "c"}])
    registry.faults = [503]
    orders.send(made.payloads)
    has(query, orders.rows, [(1, None), (2, None), (3, "a"), (4, "b"), (5, "c")])
    query.stop()


def test_a_schema_that_lacks_a_field_takes_none_from_the_table(
    job: TableJob, registry: Registry
) -> None:
    """Records of before are in the same batches. What came with it is there from the next start."""
    orders = Orders(job, registry)
    orders.write(NOTE, {"id": 1, "note": "a"})
    query = orders.started([(1, "a")])
    time.sleep(ASKED_S)
    other = NOTE.replace("note", "more")
    before, after = (
        avro(registry.url, job.topic, AVRO % more, [{"id": id, name: "b"}]).payloads
        for id, name, more in ((2, "note", NOTE), (3, "more", other))
    )
    orders.send([*before, *after])
    has(query, orders.rows, [(1, "a"), (2, "b"), (3, None)])
    query.stop()
    assert "more" not in job.rows()[0]
    orders.write(other, {"id": 4, "more": "c"})
    orders.run()
    assert {row["id"]: row["more"] for row in job.rows()}[4] == "c"


@pytest.mark.parametrize("mode", usually("individual", "batch"))
def test_a_field_that_the_table_cannot_take_stops_the_query_before_it_is_written(
    job: TableJob, registry: Registry, mode: str
) -> None:
    orders = Orders(job, registry, **(individual(job.home) if mode == "individual" else {}))
    orders.write("", {"id": 1})
    query = orders.started([(1, "no column")])
    time.sleep(ASKED_S)
    version = DeltaTable(job.table).version()
    local = '{"type":"long","logicalType":"local-timestamp-micros"}'
    orders.write(NOTE.replace('"string"', local), {"id": 2, "note": datetime(2026, 1, 2)})
    text = failure_of(query)
    assert "[SINK_UNSUITABLE]" in text
    assert "timestamps without a zone need feature timestampNtz" in text
    assert DeltaTable(job.table).version() == version
    supported = "'delta.feature.timestampNtz' = 'supported'"
    job.spark.sql(f"ALTER TABLE delta.`{job.table}` SET TBLPROPERTIES ({supported})")
    orders.run()
    assert orders.rows() == [(1, None), (2, datetime(2026, 1, 2))]


@pytest.mark.parametrize("mode", usually("individual", "batch"))
@pytest.mark.parametrize("before", [True, False])
def test_a_driver_that_fails_where_the_column_comes(
    job: TableJob,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    before: bool,
) -> None:
    orders = Orders(job, registry, **(individual(job.home) if mode == "individual" else {}))
    orders.write("", {"id": 1})
    query = orders.started([(1, "no column")])
    whole: Callable[..., Any] = SinkTable.append

    def crashing(*arguments: Any, **named: Any) -> Any:
        if not before:
            whole(*arguments, **named)
        raise RuntimeError("the driver ends")

    time.sleep(ASKED_S)
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "append", crashing)
        orders.write(NOTE, {"id": 2, "note": "a"})
        assert "the driver ends" in failure_of(query)
    # The batch has a manifest; what it says holds, whatever the newest schema is by now.
    registry.subjects[f"{job.topic}-value"].pop()
    orders.run()
    assert orders.rows() == [(1, None), (2, "a")]
    orders.write(NOTE, {"id": 3, "note": "b"})
    orders.run()
    assert orders.rows() == [(1, None), (2, "a"), (3, "b")]


class Wider:
    """Writes the rows of a source as Debezium does, from some change on with a column more."""

    def __init__(self) -> None:
        self.has_more = False

    def __call__(self, source: Source, key: Any, value: Any) -> Written:
        told, body = json_with_schemas(source, key, value)
        if body is None or not self.has_more:
            return told, body
        document = json.loads(body)
        for side in document["schema"]["fields"][:2]:
            side["fields"].append({"type": "string", "optional": True, "field": "extra"})
        for side in ("before", "after"):
            if row := document["payload"][side]:
                row["extra"] = f"extra {row['id']}"
        return told, json.dumps(document).encode()


def test_a_column_that_the_captured_table_gets(job: TableJob) -> None:
    """Also in a row that was there, which is updated."""
    write = Wider()
    source = Source("mysql", write)

    def change(*changes: list[Written]) -> None:
        job.produce(*(Record(value, key, 0) for each in changes for key, value in each))

    def rows() -> list[tuple[Any, ...]]:
        return sorted((row["id"], row.get("extra", "no column")) for row in job.rows())

    row = dict.fromkeys(["name", "day", "at", "seen", "price", "note", "blob", "tags", "counts"])
    change(source.insert({"id": 1, **row}), source.insert({"id": 2, **row}))
    query = job.start(into=KEYED, trigger=RUNS, valueFormat="debezium")
    wait_until(lambda: DeltaTable.is_deltatable(str(job.table)))
    has(query, rows, [(1, "no column"), (2, "no column")])
    time.sleep(LOOKED_S)
    write.has_more = True
    change(source.insert({"id": 3, **row}), source.update(1, {"name": "again"}))
    has(query, rows, [(1, "extra 1"), (2, None), (3, "extra 3")])
    query.stop()
