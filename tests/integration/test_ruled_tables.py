"""Tables with rules or features to which files do not keep: the session's Delta appends to them,
once for each batch wherever the driver ends, and holds rows to the rules."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from keyrange.errors import KeyrangeError
from keyrange.individual_commits import table_output
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.jobs import output_tables
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.sink_table import SinkTable
from keyrange.storage.table_store import Conflict
from keyrange.storage.write_by_spark import SparkWriter
from project.forms import usually
from queries.crashing_jobs import CrashingJob
from queries.individual import AT_ONCE, failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import committed, options
from tables.keyed_tables import KeyedTable

cloudpickle.register_pickle_by_value(sys.modules[__name__])

# What comes behind the columns of rows, what behind all columns, and why files are not appended.
TABLES: Final[dict[str, tuple[str, str, str]]] = {
    "by_name": ("", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", "other names in files"),
    "by_id": ("", "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')", "other names in files"),
    "tracked": ("", "TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "feature "),
    "numbered": (", n bigint GENERATED ALWAYS AS IDENTITY", "", "column n has an "),
    "doubled": (", twice bigint GENERATED ALWAYS AS (id * 2)", "", "column twice has an "),
    "dated": (
        ", month int GENERATED ALWAYS AS (MONTH(at))",
        "PARTITIONED BY (month)",
        "column month is generated|column month has an |rows have no column month",
    ),
    "held": ("", "", "not be held to delta.constraints"),
    "short": (", code varchar(5)", "", "column code has "),
    "clustered": ("", "CLUSTER BY (id)", "feature (clustering|domainMetadata)"),
    "filled": (
        ", more string DEFAULT 'x'",
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "feature allowColumnDefaults",
    ),
    "iceberg": (
        "",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.enableIcebergCompatV2' = 'true', 'delta.enableDeletionVectors' = 'false')",
        "feature icebergCompatV2",
    ),
    "listed": (
        "",
        "TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')",
        "by manifests",
    ),
    # To these tasks append.
    "vectors": ("", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", ""),
    "wider": ("", "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", ""),
    "clocked": ("", "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", ""),
    "summed": (
        "",
        "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
        "",
    ),
}
# What Delta makes of the other columns.
MORE: Final[dict[str, Any]] = {
    "doubled": lambda row: row.twice == 2 * row.id,
    "dated": lambda row: row.month == row["at"].month,
    "short": lambda row: row.code is None,
    "filled": lambda row: row.more == "x",
}
COLUMNS: Final = "id bigint, text string, at timestamp"


def row(record: Any) -> Any:
    return (int(record.value), f"t{record.offset}", record.timestamp)


def rows(record: Any) -> Any:
    return dict.fromkeys(TABLES, row(record))


@pytest.fixture
def places(spark: SparkSession, tmp_path: Path) -> dict[str, str]:
    found = {name: str(tmp_path / "tables" / name) for name in TABLES}
    for name, (columns, more, _) in TABLES.items():
        spark.sql(f"CREATE TABLE delta.`{found[name]}` ({COLUMNS}{columns}) USING delta {more}")
    spark.sql(f"ALTER TABLE delta.`{found['held']}` ADD CONSTRAINT positive CHECK (id >= 0)")
    return found


@pytest.mark.slow
def test_each_feature_of_deltas(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    places: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All of them in one query; Spark reads each, and a batch that runs again is there once."""
    topic = topics.create_topic("ruled", 2)
    given = options(topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    job = keyrange.job(given, rows, dict.fromkeys(TABLES, COLUMNS))
    with caplog.at_level(logging.INFO, "keyrange.jobs"):
        writer = job.into(places, str(tmp_path / "checkpoint"), spark=spark)
    said = {
        name: [each for each in caplog.messages if f"table {places[name]}, and" in each]
        for name in TABLES
    }
    assert {name: len(each) for name, each in said.items()} == {
        name: int(bool(why)) for name, (_, _, why) in TABLES.items()
    }
    assert all(f"{name}: the tasks that read" in writer.written_by for name in ("vectors", "wider"))
    topics.produce(topic, [Record(b"%d" % n, b"k", n % 2) for n in range(16)])
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    assert committed(tmp_path / "checkpoint") == [0, 1]
    for name, place in places.items():
        found = spark.sql(f"SELECT * FROM delta.`{place}` ORDER BY id").collect()
        assert [each.id for each in found] == list(range(16)), name
        assert all(map(MORE.get(name, lambda _: True), found)), name
    numbers = {
        each.n for each in spark.sql(f"SELECT n FROM delta.`{places['numbered']}`").collect()
    }
    assert len(numbers) == 16


@pytest.mark.slow  # as test_keyed_table_jobs.py has it of merges
def test_spark_appends_once_and_nothing_of_a_driver_that_is_stopped_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has looked whether it still counts, and Delta knows the batch's transaction alone. The
    log has a clock of its own, by which keyrange's entries stand among Spark's."""
    table = KeyedTable(tmp_path, keys=())
    table.merger = SparkWriter(spark, str(table.table))
    spark.sql(
        f"CREATE TABLE delta.`{table.table}` (id bigint, text string) USING delta TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true')"
    )
    old = Driver("old", 1)
    new = Driver("new", 2, frozenset({"old"}), {"app": 0}, frozenset({"app"}))
    table.merge(0, table.staged((1, "a"), (1, "b"), files=2), driver=old)
    staged = table.staged((2, "late"))
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        table.merge_too_late(1, staged, old, by=new)
    again = Driver("old", 3)
    for _ in range(2):
        table.merge(1, staged, driver=again)
    found = spark.sql(f"SELECT id, text FROM delta.`{table.table}` ORDER BY id, text").collect()
    assert list(map(tuple, found)) == [(1, "a"), (1, "b"), (2, "late")]
    logs = sorted((table.table / "_delta_log").glob("*.json"))
    told = [json.loads(each.read_text().splitlines()[0])["commitInfo"] for each in logs]
    times = [each["inCommitTimestamp"] for each in told]
    assert times == sorted(set(times))
    assert {each["engineInfo"].split("/")[0] for each in told} == {"keyrange", "Apache-Spark"}


@pytest.fixture
def crashing(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[CrashingJob]:
    job = CrashingJob(spark, topics, tmp_path, request.param)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (at bigint, text string) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    yield job
    for query in spark.streams.active:
        query.stop()


def texts(job: CrashingJob) -> dict[int, str]:
    """As Spark reads them: delta-rs does not map columns."""
    found = job.spark.sql(f"SELECT at, text FROM delta.`{job.table}`").collect()
    assert len({each["at"] for each in found}) == len(found), found
    return {each["at"]: each.text for each in found}


@pytest.mark.parametrize(
    ("crashing", "owner", "step", "before"),
    [
        pytest.param("batch", VerdictStore, "publish", True, marks=pytest.mark.slow),
        pytest.param("batch", SinkTable, "write", True, marks=pytest.mark.slow),
        pytest.param("batch", SparkWriter, "write", False, marks=pytest.mark.slow),
        pytest.param("batch", SinkTable, "write", False, marks=pytest.mark.slow),
        ("individual", SinkTable, "write", True),
        pytest.param("individual", DeltaCommitTable, "append", True, marks=pytest.mark.slow),
    ],
    indirect=["crashing"],
)
def test_a_batch_is_appended_once_wherever_the_driver_ends(
    crashing: CrashingJob, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool
) -> None:
    job = crashing
    job.produce("a", "b")
    job.run()
    job.produce("c", "d")
    has_manifest = step != "publish"
    if owner is SparkWriter:
        # A failure that may have landed is looked at in the table, and is none.
        whole, raised = SparkWriter.write, [OSError("no answer"), Conflict()]

        def landing(self: SparkWriter, *given: Any) -> Any:
            whole(self, *given)
            raise raised.pop()

        with monkeypatch.context() as patch:
            patch.setattr(SparkWriter, "write", landing)
            job.run()
        assert len(raised) == 1
        assert committed(job.checkpoint) == [0, 1]
    else:
        assert f"at {step}" in job.crash(monkeypatch, owner, step, before)
        assert committed(job.checkpoint) == [0]
    count = len(job.worked_on)
    job.produce("e")
    job.run("2")
    again = "" if has_manifest else "2"
    assert texts(job) == {0: "a", 1: "b", 2: f"c{again}", 3: f"d{again}", 4: "e2"}
    assert len(job.worked_on) == count + 1 + (0 if has_manifest else 2)
    operations = [each["operation"] for each in DeltaTable(job.table).history()]
    assert operations.count("WRITE") == 3
    # Nothing is left but what the last batch has.
    names = sorted(each.name for each in job.verdicts.iterdir())
    assert [each for each in names if each.isdecimal()] == ["2"]
    assert len([each for each in names if each.startswith("plan-")]) == 1


@pytest.mark.parametrize("crashing", ["batch"], indirect=True)
def test_rules_that_come_and_go_between_two_runs(
    crashing: CrashingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest says who writes its rows."""
    job, table = crashing, f"delta.`{crashing.home}/plain`"
    job.spark.sql(f"CREATE TABLE {table} (at bigint, text string) USING delta")
    job.table = job.home / "plain"
    job.produce("a")
    job.run()
    job.produce("b")
    job.crash(monkeypatch, SinkTable, "append", True)
    job.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK (at < 9)")
    text = failure_of(job.start())
    assert "SINK_UNSUITABLE" in text
    assert "constraints.c" in text
    job.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT c")
    job.run()
    job.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK (at < 9)")
    job.produce("c")
    job.crash(monkeypatch, SinkTable, "write", True)
    job.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT c")
    with monkeypatch.context() as patch:
        patch.setattr(table_output, "has_delta", lambda _: False)
        patch.setattr(output_tables, "has_delta", lambda _: False)
        assert "rows wait to be appended by Delta" in failure_of(job.start())
    job.produce("d")
    job.run("2")
    assert job.rows() == {0: "a", 1: "b", 2: "c", 3: "d2"}


def test_a_row_that_breaks_a_rule_is_named_and_nothing_of_it_said(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = f"delta.`{job.table}`"
    spark.sql(
        f"CREATE TABLE {table} (id bigint NOT NULL, text string, code varchar(3), twice bigint "
        "GENERATED ALWAYS AS (id * 2)) USING delta"
    )
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)")
    schema = "id bigint, text string, code string, twice bigint"

    def made(record: Any) -> Any:
        id, code, twice = record.value.decode().split(",")
        return (int(id) if id else None, "secret", code, int(twice))

    def check(value: bytes, rule: str) -> None:
        job.topic, job.checkpoint = topics.create_topic("refused", 2), tmp_path / str(value)
        job.produce(Record(b"8,ok,16", b"k", 1), Record(value, b"k", 1))
        for _ in range(2):
            text = failure_of(job.start(made, schema))
            assert "[ROWS_REFUSED]" in text
            assert rule in text
            assert f"partition={job.topic}-1" in text
            assert "offset=1" in text
            assert "secret" not in text

    check(b",abc,4", "no value in column id, which is NOT NULL")
    check(b"7,abcd,14", "longer text than column code varchar(3)")
    check(b"7,abc,15", "another value in column twice than")
    check(b"-7,abc,-14", "a row breaks CHECK constraint positive (id > 0)")
    assert job.rows() == []
    # The way out that the error names.
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT positive")
    job.run(made, schema)
    assert sorted(row["id"] for row in job.rows()) == [-7, 8]


def test_columns_that_the_table_lacks(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Delta adds them in the transaction of the batch."""
    job = TableJob(spark, topics, tmp_path)
    table = f"delta.`{job.table}`"
    spark.sql(
        f"CREATE TABLE {table} (id int, s struct<a: int>) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    job.produce(b"1")
    schema = "id bigint, s struct<a: int, `b c`: string>, `a name` string"

    def made(record: Any) -> Any:
        return (1 << 40, (1, "b"), "x")

    with pytest.raises(KeyrangeError, match=r"SINK_UNSUITABLE.*no column s.`b c`, `a name`: ALTER"):
        job.start(made, schema)
    job.run(made, schema, into={"evolve": "add"})
    found = spark.sql(f"SELECT id, s.`b c`, `a name` FROM {table}").collect()
    assert list(map(tuple, found)) == [(1 << 40, "b", "x")]
    assert DeltaTable(job.table).version() == 1


def test_without_delta_in_the_session_it_is_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TableJob(spark, topics, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (id bigint) USING delta TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true')"
    )
    monkeypatch.setattr(output_tables, "has_delta", lambda _: False)
    text = r"SINK_UNSUITABLE.*feature domainMetadata: a query that is started in a session with"
    with pytest.raises(KeyrangeError, match=text):
        job.start(lambda record: (record.offset,), "id bigint")


@pytest.mark.parametrize("mode", usually("record", "arrow"))
def test_records_that_fail_and_keep_state(
    spark: SparkSession, topics: Topics, tmp_path: Path, mode: Any
) -> None:
    job = TableJob(spark, topics, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (n bigint) USING delta TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true')"
    )
    job.produce(*(Record(b"%d" % n, b"k%d" % (n % 3), 0) for n in range(9)))
    given = individual(tmp_path, splitBy="keyRange", **AT_ONCE)
    if mode == "arrow":
        job.run(numbers, "n bigint", "arrow", **individual(tmp_path, **AT_ONCE))
        found = spark.sql(f"SELECT n FROM delta.`{job.table}`").collect()
        assert sorted(each.n for each in found) == list(range(9))
        return

    def counted(record: Any, state: Any) -> Any:
        if record.value == b"4" and record.deliveries == 1:
            raise ValueError("later")
        seen = state.seen.get(default=0) + 1
        state.seen.update(seen)
        return (seen,)

    state = {"seen": keyrange.ValueState("n long")}
    job.run(counted, "n bigint", state=state, **given)
    job.run(counted, "n bigint", state=state, **given)
    found = spark.sql(f"SELECT n FROM delta.`{job.table}`").collect()
    assert sorted(each.n for each in found) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def numbers(batch: Any) -> Any:
    import pyarrow as pa

    return pa.record_batch({"n": batch.column("offset")})
