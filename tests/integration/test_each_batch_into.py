"""`keyrange.process_into`: what a table takes of a batch, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import keyrange
from handmade_batches import Sent, Sink, Stage, done, refused, upper, working
from keyrange.individual_commits.model.redelivery import RedeliveryPolicy
from keyrange.individual_commits.verdict_store import VerdictStore

SCHEMA = "at long, text string"


def into(table: Path | str, function: Any = upper, **how: Any) -> Callable[[DataFrame, int], None]:
    def body(batch: DataFrame, _: int) -> None:
        keyrange.process_into(batch, function, SCHEMA, str(table), **how)

    return body


def rows_in(table: Path) -> list[tuple[int, str]]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["at"], row["text"]) for row in rows)


def test_rows_of_what_is_done_and_nothing_else(stage: Stage, spark: SparkSession) -> None:
    table = stage.directory / "sink"
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("b", "y"), Sent("c", "-"), Sent("d", "*z")]
    stage.run(into(table))
    assert rows_in(table) == [(0, "X"), (4, "*Z"), (4, "*Z")]
    assert done(stage.state) == {1: ("REJECTED", 1), 2: ("HELD_BACK", 0)}
    # The verdict holds none of these rows, and its files are not the table's.
    store = VerdictStore(str(stage.verdicts), "source-1")
    found = store.manifest_of(0)
    assert found is not None
    assert found.table == str(table)
    assert spark.read.parquet(*store.paths(found)).columns == ["_keyrange"]
    assert stage.store[-1].counts
    assert [count.done for count in stage.store[-1].counts.values()] == [3]


def test_what_is_cleaned_up_stays_in_the_table(stage: Stage) -> None:
    table = stage.directory / "sink"
    for at in range(3):
        stage.log.append(Sent(f"k{at}", f"v{at}"))
        stage.run(into(table))
    assert [each.name for each in (stage.verdicts / "source-1").iterdir()] == ["2"]
    assert rows_in(table) == [(0, "V0"), (1, "V1"), (2, "V2")]
    assert stage.spark.read.parquet(*DeltaTable(table).file_uris()).count() == 3


def test_spark_reads_the_table_and_adds_to_it(stage: Stage, spark: SparkSession) -> None:
    table = stage.directory / "sink"
    stage.log = [Sent("a", "x")]
    stage.run(into(table))
    frame = spark.createDataFrame([(9, "by Spark")], SCHEMA)
    frame.write.format("delta").mode("append").save(str(table))
    stage.log.append(Sent("a", "y"))
    stage.run(into(table))
    found = spark.read.format("delta").load(str(table))
    assert sorted(map(tuple, found.where("at >= 1").collect())) == [(1, "Y"), (9, "by Spark")]
    assert found.count() == 3


def test_a_partitioned_table_that_spark_made(stage: Stage, spark: SparkSession) -> None:
    """Spark finds the rows by their partition, and generates the same day for its own."""
    table, schema = stage.directory / "sink", "at long, text string, time timestamp"
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({schema}, day date GENERATED ALWAYS AS "
        "(CAST(time AS DATE))) USING delta PARTITIONED BY (text, day)"
    )

    def timed(batch: Any) -> Any:
        import pyarrow as pa

        seconds = pa.compute.multiply(batch.column("offset"), 40_000).cast(pa.timestamp("s", "UTC"))
        texts = batch.column("value").cast(pa.string())
        return pa.record_batch(
            [batch.column("offset"), texts, seconds.cast(pa.timestamp("us", "UTC"))],
            ["at", "text", "time"],
        )

    values = ["a/b=c%", "é 世:#?'\"+&", "%2F", "..", "x"]
    stage.log = [Sent(f"k{at}", value) for at, value in enumerate(values)]
    stage.run(
        lambda batch, _: keyrange.process_into(batch, timed, schema, str(table), mode="arrow")
    )
    frame = spark.sql("SELECT 9L AS at, 'x' AS text, timestamp_seconds(160000) AS time")
    frame.write.format("delta").mode("append").save(str(table))
    found = spark.read.format("delta").load(str(table))
    assert {row.at: (row.text, str(row.day)) for row in found.collect()} == {
        **{at: (value, f"1970-01-0{1 + at * 40 // 86}") for at, value in enumerate(values)},
        9: ("x", "1970-01-02"),
    }
    for at, value in enumerate(values):
        assert at in [row.at for row in found.where(found.text == value).collect()]
    late = found.where("time >= timestamp_seconds(100000)")
    assert sorted(row.at for row in late.collect()) == [3, 4, 9]


def test_batches_of_arrow(stage: Stage) -> None:
    table = stage.directory / "sink"
    stage.log = [Sent(f"k{at}", "v") for at in range(5)]

    def same(batch: Any) -> Any:
        return batch.select(["offset", "topic"]).rename_columns(["at", "text"])

    stage.run(into(table, same, mode="arrow"))
    assert rows_in(table) == [(at, "t") for at in range(5)]


def test_a_batch_of_which_nothing_is_done(stage: Stage) -> None:
    table = stage.directory / "sink"
    stage.log = [Sent("a", "!")]
    stage.run(into(table))
    assert DeltaTable(table).version() == 0
    assert done(stage.state) == {0: ("REJECTED", 1)}


def test_a_table_is_refused_before_the_function_runs(stage: Stage) -> None:
    DeltaTable.create(stage.directory / "sink", _one_column())
    stage.log = [Sent("a", "x")]
    batch_id = stage.plan()
    with refused("SINK_UNSUITABLE", "no column text"):
        stage.each_batch(into(stage.directory / "sink"))(stage.batch(batch_id), batch_id)
    assert not (stage.verdicts / "source-1").exists()


def _one_column() -> Any:
    import pyarrow as pa

    return pa.schema([pa.field("at", pa.int64())])


@pytest.mark.parametrize("first_into", [True, False])
def test_a_batch_goes_on_to_where_its_output_is(stage: Stage, first_into: bool) -> None:
    """Elsewhere its output would be missing, or be there twice."""
    ways = [into(stage.directory / "sink"), working(Sink())]
    first, then = ways if first_into else reversed(ways)
    stage.log = [Sent("a", "x")]
    batch_id = stage.plan()

    def failing(batch: DataFrame, number: int) -> None:
        first(batch, number)
        raise LookupError

    with pytest.raises(LookupError):
        stage.each_batch(failing)(stage.batch(batch_id), batch_id)
    with refused("BATCH_UNFINISHED", "keyrange.process"):
        stage.each_batch(then)(stage.batch(batch_id), batch_id)
    with refused("BATCH_UNFINISHED", "table .*other"):
        stage.each_batch(into(stage.directory / "other"))(stage.batch(batch_id), batch_id)
    stage.each_batch(first)(stage.batch(batch_id), batch_id)
    assert not done(stage.state)


def test_output_that_was_vacuumed_before_its_batch_was_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keyrange.storage.sink_table import SinkTable

    table = stage.directory / "sink"
    stage.log = [Sent("a", "x")]
    batch_id = stage.plan()
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "append", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stage.each_batch(into(table))(stage.batch(batch_id), batch_id)
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with refused("VERDICT_DAMAGED", "the table's log does not name it yet"):
        stage.each_batch(into(table))(stage.batch(batch_id), batch_id)
    assert rows_in(table) == []


def test_what_is_refused(stage: Stage) -> None:
    stage.log = [Sent("a", "x")]
    batch_id = stage.plan()
    with refused("INVALID_OPTIONS", "absolute path"):
        stage.each_batch(into("sink"))(stage.batch(batch_id), batch_id)
    whole = stage.options
    stage.options = replace(whole, commits=replace(whole.commits, transactional=True))
    with refused("INVALID_OPTIONS", "commit.isolation=immediate"):
        stage.each_batch(into(stage.directory / "sink"))(stage.batch(batch_id), batch_id)


def test_the_last_delivery_is_kept_whole(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, policy=RedeliveryPolicy(1, 0, 0))
    stage.log = [Sent("a", "!no"), Sent("b", "x")]
    stage.run(into(tmp_path / "sink"))
    [letter] = stage.graves.letters
    assert letter.value == b"!no"
    assert letter.error.startswith("ValueError: no !no (handmade_batches.py, line ")
