"""`jobs/ingest.py` in a session: who writes its table, and how a query goes on that has begun."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from spark.notebooks import load_job
from spark.sources import options


class Ingest:
    """Runs of the job on a topic of its own, each to the end of what is there."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path) -> None:
        self.spark, self.topics = spark, topics
        self.topic = topics.create_topic("ingest", 2)
        self.table, self.checkpoint = home / "table", home / "checkpoint"
        self.job: Any = load_job("ingest")

    def run(self, *more: str, values: tuple[bytes, ...] = (b"1", b"2")) -> None:
        """Raises what the query failed with."""
        records = [Record(value, b"k", n % 2) for n, value in enumerate(values)]
        self.topics.produce(self.topic, records)
        arguments = self.job.parse_arguments(
            [
                *("--bootstrap-servers", self.topics.cluster.bootstrap_servers),
                *("--topic", self.topic, "--table", str(self.table)),
                *("--checkpoint", str(self.checkpoint), "--available-now", *more),
            ]
        )
        query, self.written_by = self.job.start(
            self.spark, arguments, self.job.source_options(arguments)
        )
        assert query.awaitTermination(240)

    @property
    def values(self) -> list[bytes]:
        return sorted(DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist())

    @property
    def writer(self) -> str:
        """Who wrote the last batch, by its offset."""
        last = max((self.checkpoint / "offsets").glob("[0-9]"), key=lambda path: int(path.name))
        offset = json.loads(last.read_text().splitlines()[-1])
        return "job" if "sourceId" in offset["@keyrange"] else "Spark"


@pytest.fixture
def ingest(spark: SparkSession, topics: Topics, tmp_path: Path) -> Ingest:
    return Ingest(spark, topics, tmp_path)


def test_the_tasks_that_read_write_a_table_as_it_was_asked_for(ingest: Ingest) -> None:
    flags = ("--partition-by", "date(timestamp)", "--optimize-every", "1")
    ingest.run(*flags, "--compression", "zstd")
    ingest.run(*flags, values=(b"3",))
    assert ingest.writer == "job"
    assert ingest.values == [b"1", b"2", b"3"]
    table = DeltaTable(ingest.table)
    assert table.metadata().partition_columns == ["date"]
    assert "OPTIMIZE" in [each["operation"] for each in table.history()]


def test_json_goes_to_typed_columns(ingest: Ingest) -> None:
    schema = ("--option", "valueSchema=id bigint, price double")
    flags = ("--option", "valueFormat=json", *schema)
    ingest.run(*flags, "--partition-by", "topic", values=(b'{"id": 7, "price": 2.5}',))
    # What a table is partitioned by is known where columns of its rows are.
    ingest.run(*flags, values=(b'{"id": 8}',))
    rows = DeltaTable(ingest.table).to_pyarrow_table().to_pylist()
    found = sorted((row["offset"], row["key"], row["id"], row["price"]) for row in rows)
    assert found == [(0, b"k", 7, 2.5), (1, b"k", 8, None)]
    assert DeltaTable(ingest.table).metadata().partition_columns == ["topic"]


def test_a_query_of_the_delta_sink_goes_on_with_it_until_it_is_told_otherwise(
    ingest: Ingest, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    ingest.run("--written-by", "spark")
    with caplog.at_level(logging.INFO, "ingest"):
        ingest.run(values=(b"3",))
    assert ingest.writer == "Spark"
    assert "it has written this query's table so far" in caplog.text
    assert ingest.values == [b"1", b"2", b"3"]
    # A job goes on where a Delta sink has finished.
    ingest.topics.produce(ingest.topic, [b"4"])
    job = keyrange.job(options(ingest.topics, ingest.topic))
    writer = job.into(str(ingest.table), str(ingest.checkpoint), spark=spark)
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    assert ingest.writer == "job"
    assert ingest.values == [b"1", b"2", b"3", b"4"]


def test_a_table_with_a_constraint_is_written_by_the_sessions_delta(
    ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "integer",
        "offset": "long",
        "timestamp": "timestamp",
        "timestampType": "integer",
    }
    fields = [Field(name, PrimitiveType(kind)) for name, kind in kinds.items()]
    table = DeltaTable.create(ingest.table, Schema(fields))
    table.alter.add_constraint({"there": "offset >= 0"})
    with caplog.at_level(logging.INFO, "keyrange"):
        ingest.run()
    assert ingest.writer == "job"
    why = "rows would not be held to delta.constraints.there"
    assert ingest.written_by == f"the session's Delta ({why})"
    said = [each for each in caplog.messages if each.startswith("the session's Delta appends to")]
    assert [each.endswith(why) for each in said] == [True]
    assert ingest.values == [b"1", b"2"]


def test_a_batch_that_one_way_began_is_not_finished_by_the_other(ingest: Ingest) -> None:
    ingest.run()
    # As after a kill between the table's transaction and Spark's commit.
    (ingest.checkpoint / "commits" / "0").unlink()
    (ingest.checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match="BATCH_UNFINISHED"):
        ingest.run("--written-by", "spark", values=())
    ingest.run(values=(b"3",))
    assert ingest.values == [b"1", b"2", b"3"]
