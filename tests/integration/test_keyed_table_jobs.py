"""`into(..., keys=[...])`: the table holds the last row of each key, merged by the driver or by
Spark's Delta, once for each batch wherever the driver ends."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.errors import KeyrangeError
from keyrange.individual_commits import last_batch_results, table_output
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.sink_table import SinkTable
from keyrange.storage.write_by_spark import SparkWriter
from project.forms import usually
from queries.crashing_jobs import CrashingJob
from queries.individual import AT_ONCE, failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import committed
from tables.keyed_tables import KeyedTable

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "id string, text string, n long, gone boolean"
INTO: dict[str, Any] = {"keys": ["id"], "deletes": "gone"}


@pytest.fixture(params=usually("driver", "spark"))
def merger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who merges: Spark what is too much for the driver."""
    if request.param == "spark":
        monkeypatch.setattr(table_output, "BYTES_MAX", 0)
    name: str = request.param
    return name


def last_text(record: Any) -> Any:
    """The row of a key; it says delete where the value is empty."""
    text = record.value.decode()
    return (record.key.decode(), text or None, record.offset, not text)


def held(table: Path, spark: SparkSession) -> dict[str, str]:
    rows = spark.sql(f"SELECT id, text FROM delta.`{table}`").collect()
    found = {row.id: row.text for row in rows}
    assert len(found) == len(rows), rows
    return found


def random_records(seed: int, count: int) -> tuple[list[Record], dict[str, str]]:
    """Records of few keys, each key in one partition, and what is left of them."""
    source, left = random.Random(seed), dict[str, str]()
    records = []
    for n in range(count):
        key = source.randrange(20)
        text = "" if source.random() < 0.2 else f"{n}"
        records.append(Record(text.encode(), b"k%d" % key, key % 2))
        left[f"k{key}"] = text
    return records, {key: text for key, text in left.items() if text}


@pytest.mark.parametrize(
    ("merger", "mode"), [("spark", "individual"), ("driver", "batch")], indirect=["merger"]
)
def test_the_last_row_of_each_key_over_many_batches_and_key_ranges(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str, mode: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    records, left = random_records(7, 600)
    job.produce(*records)
    given = {
        "splitBy": "keyRange",
        "keyRangesPerPartition": "3",
        "bytesPerTask": "0",
        "maxOffsetsPerTrigger": "200",
        "maxBatchRows": "40",
    }
    if mode == "individual":
        given |= individual(tmp_path, **AT_ONCE)
    query = job.run(last_text, SCHEMA, into=INTO, **given)
    assert held(job.table, spark) == left
    assert "gone" not in DeltaTable(job.table).schema().to_arrow().names
    batches = committed(job.checkpoint)
    assert len(batches) >= 3
    told = [last_batch_results.merged_of(query.id, batch) for batch in batches]
    totals = [sum(getattr(each, name) for each in told if each) for name in ("inserted", "deleted")]
    assert totals[0] - totals[1] == len(left)
    assert sum(each.updated for each in told if each) > 0
    # Nothing is left but what the last batch has.
    root = tmp_path / "commits_verdicts" if mode == "individual" else job.checkpoint / "keyrange"
    [source] = root.iterdir()
    names = sorted(each.name for each in source.iterdir())
    assert [each for each in names if each.isdecimal()] == [str(batches[-1])]
    assert len([each for each in names if each.startswith("plan-")]) == 1
    operations = {each["operation"] for each in DeltaTable(job.table).history()}
    assert "MERGE" in operations


def test_records_as_they_are_and_tombstones(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    job.produce(Record(b"1", b"a", 0), Record(b"2", b"b", 1), Record(b"3", b"a", 0))
    job.run(into={"keys": "key"}, columns="key,value,offset")
    job.produce(Record(None, b"b", 1), Record(b"4", b"c", 1), Record(None, b"never", 0))
    job.run(into={"keys": "key"}, columns="key,value,offset")
    assert sorted((row["key"], row["value"]) for row in job.rows()) == [(b"a", b"3"), (b"c", b"4")]


def test_json_values_by_days_with_a_column_that_deletes(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    into = {"keys": ["id", "day"], "partition_by": ["day"], "deletes": "gone"}
    given = {
        "valueFormat": "json",
        "valueSchema": "id bigint, day date, text string, gone boolean",
        "columns": "value",
    }

    def produce(*rows: dict[str, Any]) -> None:
        job.produce(*(Record(json.dumps(row).encode(), b"%d" % row["id"], 0) for row in rows))

    day = {"day": "2026-01-30"}
    produce({"id": 1, "text": "a", **day}, {"id": 2, "text": "b", "day": "2026-01-31"})
    job.run(into=into, **given)
    produce({"id": 1, "text": "c", **day}, {"id": 2, "day": "2026-01-31", "gone": True})
    job.run(into=into, **given)
    assert [(row["id"], row["text"], str(row["day"])) for row in job.rows()] == [
        (1, "c", "2026-01-30")
    ]
    # A tombstone has no id: which row it deletes is not known.
    job.produce(Record(None, b"1", 0))
    text = failure_of(job.start(into=into, **given))
    assert "[RECORD_FAILED] ValueError: column 'id' is null, and is a key of the table" in text


def test_a_key_that_comes_from_two_partitions(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str
) -> None:
    """Of one batch that of the later timestamp counts, and of two batches that of the later one."""
    job = TableJob(spark, topics, tmp_path)

    def at(text: str, partition: int, timestamp_ms: int) -> Record:
        return Record(text.encode(), b"k", partition, timestamp_ms=timestamp_ms)

    job.produce(at("older", 1, 1_000), at("newer", 0, 2_000), at("newest", 0, 500))
    job.run(last_text, SCHEMA, into=INTO, bytesPerTask="0")
    # Within a partition its order stands above timestamps: then 500 ms are before 1,000.
    assert held(job.table, spark) == {"k": "older"}
    job.produce(at("later batch", 0, 100))
    job.run(last_text, SCHEMA, into=INTO)
    assert held(job.table, spark) == {"k": "later batch"}


@pytest.mark.parametrize("mode", usually("individual", "batch"))
def test_arrow_batches_and_lists_of_rows(
    spark: SparkSession, topics: Topics, tmp_path: Path, mode: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    given = individual(tmp_path, **AT_ONCE) if mode == "individual" else {}
    job.produce(*(Record(b"%d" % n, b"k%d" % (n % 3), n % 3 % 2) for n in range(30)))

    def doubled(batch: Any) -> Any:
        return batch.select(["key", "value"])

    into = {"keys": ["key"]}
    job.run(doubled, "key binary, value binary", "arrow", into=into, **given)
    job.run(
        lambda record: [(record.key, b"no"), (record.key, record.value + b"!")],
        "key binary, value binary",
        into=into,
        **given,
    )
    assert sorted(row["value"] for row in job.rows()) == [b"27", b"28", b"29"]
    job.produce(Record(b"x", b"k0", 0))
    job.run(
        lambda record: [(record.key, b"no"), (record.key, record.value + b"!")],
        "key binary, value binary",
        into=into,
        **given,
    )
    assert sorted(row["value"] for row in job.rows()) == [b"28", b"29", b"x!"]


def test_a_table_with_deletion_vectors_more_columns_and_new_ones(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{job.table}` (id string, kept int) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    rows = "SELECT /*+ COALESCE(1) */ * FROM VALUES ('k0', 7), ('other', 8)"
    spark.sql(f"INSERT INTO delta.`{job.table}` {rows}")
    job.produce(Record(b"a", b"k0", 0), Record(b"b", b"k1", 0))
    with pytest.raises(KeyrangeError, match=r"SINK_UNSUITABLE.* no column text, n: ALTER TABLE"):
        job.run(last_text, SCHEMA, into=INTO)
    job.run(last_text, SCHEMA, into=INTO | {"evolve": "add"})
    rows = spark.sql(f"SELECT id, kept, text FROM delta.`{job.table}` ORDER BY id").collect()
    assert list(map(tuple, rows)) == [("k0", 7, "a"), ("k1", None, "b"), ("other", 8, None)]
    log = "".join(each.read_text() for each in (job.table / "_delta_log").glob("*.json"))
    assert '"deletionVector"' in log
    # Columns and rows came in one transaction.
    operations = [each["operation"] for each in DeltaTable(job.table).history()]
    assert operations == ["MERGE", "WRITE", "CREATE TABLE"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_output, "has_delta", lambda _: False)
        with pytest.raises(KeyrangeError, match="deletionVectors, with which keyrange does not"):
            job.run(last_text, SCHEMA, into=INTO)


@pytest.fixture
def crashing(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[CrashingJob]:
    yield CrashingJob(spark, topics, tmp_path, request.param)
    for query in spark.streams.active:
        query.stop()


STEPS = [
    (VerdictStore, "publish", True),
    (SinkTable, "write", True),
    (SparkWriter, "write", False),
    (SinkTable, "write", False),
]


@pytest.mark.parametrize(
    ("crashing", "owner", "step", "before"),
    [
        *(
            pytest.param("batch", *each, marks=[] if each[-1] else pytest.mark.slow)
            for each in STEPS
        ),
        pytest.param("individual", SinkTable, "write", True, marks=pytest.mark.slow),
        ("individual", DeltaCommitTable, "append", True),
        pytest.param("individual", SparkWriter, "write", False, marks=pytest.mark.slow),
    ],
    indirect=["crashing"],
)
def test_a_batch_is_merged_once_wherever_the_driver_ends(
    crashing: CrashingJob,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
) -> None:
    """Counts that are merged twice, or are made anew by another function, are seen by the text."""
    job, into = crashing, {"keys": ["at"]}
    job.produce("a", "b")
    job.run(**into)
    job.produce("c", "d")
    has_manifest = step != "publish"
    if owner is SparkWriter:
        monkeypatch.setattr(table_output, "BYTES_MAX", 0)
        # A failure that may have landed is looked at in the table, and is none.
        whole = SparkWriter.write

        def landing(self: SparkWriter, *given: Any) -> Any:
            whole(self, *given)
            raise OSError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(SparkWriter, "write", landing)
            job.run(**into)
        assert committed(job.checkpoint) == [0, 1]
    else:
        assert f"at {step}" in job.crash(monkeypatch, owner, step, before, **into)
        assert committed(job.checkpoint) == [0]
    count = len(job.worked_on)
    # Somebody deletes a row between: a batch that is merged again would bring it back.
    if owner is DeltaCommitTable or not before:
        job.spark.sql(f"DELETE FROM delta.`{job.table}` WHERE at = 2")
    job.produce("e")
    job.run("2", **into)
    again = "" if has_manifest else "2"
    expected = {0: "a", 1: "b", 2: f"c{again}", 3: f"d{again}", 4: "e2"}
    if owner is DeltaCommitTable or not before:
        del expected[2]
    assert job.rows() == expected
    assert len(job.worked_on) == count + 1 + (0 if has_manifest else 2)


@pytest.mark.parametrize("crashing", ["batch"], indirect=True)
def test_what_the_next_run_may_not_change(
    crashing: CrashingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = crashing
    job.produce("a")
    job.crash(monkeypatch, SinkTable, "write", True, keys=["at"])
    for keys, now in (({}, "without keys"), ({"keys": ["at", "text"]}, "by keys at, text")):
        with pytest.raises(KeyrangeError, match=rf"OTHER_KEYS.* by keys at, and .* there {now}"):
            job.start(**keys)
    job.run("2", keys=["at"])
    assert job.rows() == {0: "a"}


@pytest.mark.parametrize("commits", usually("individual", "batch"))
def test_a_query_goes_on_with_its_own_keys_alone(
    spark: SparkSession, topics: Topics, tmp_path: Path, commits: str
) -> None:
    """Without keys it would append what it has merged so far; by others, merge other rows."""
    given = individual(tmp_path) if commits == "individual" else {}
    job = TableJob(spark, topics, tmp_path)
    job.produce(Record(b"a", b"k"))
    job.run(last_text, SCHEMA, into=INTO, **given)
    job.produce(Record(b"b", b"k"))
    others: list[tuple[dict[str, Any], str]] = [
        ({}, "by keys id, and is to write there without keys"),
        ({"keys": ["n"], "deletes": "gone"}, "by keys id, and is to write there by keys n"),
        ({"keys": ["id", "n"], "deletes": "gone"}, "there by keys id, n"),
    ]
    for into, text in others:
        with pytest.raises(KeyrangeError, match=rf"\[OTHER_KEYS\] .*{text}"):
            job.run(last_text, SCHEMA, into={**into, "evolve": "add"}, **given)
    job.run(last_text, SCHEMA, into=INTO, **given)
    assert [row["text"] for row in job.rows()] == ["b"]


@pytest.mark.parametrize("merger", ["driver"], indirect=True)
def test_a_record_that_fails_holds_back_what_would_be_newer(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str
) -> None:
    job = TableJob(spark, topics, tmp_path)

    def once(record: Any) -> Any:
        if record.value == b"bad" and record.deliveries == 1:
            raise ValueError("later")
        if record.key is None:
            return (None, "", 0, False)
        return last_text(record)

    job.produce(Record(b"bad", b"k", 0), Record(b"newer", b"k", 0), Record(b"x", b"other", 1))
    job.run_until(2, once, SCHEMA, into=INTO, **individual(tmp_path, **AT_ONCE))
    job.run(once, SCHEMA, into=INTO, **individual(tmp_path, **AT_ONCE))
    assert held(job.table, spark) == {"k": "newer", "other": "x"}
    # A key of the table that is null is the fault of its record alone.
    job.produce(Record(b"y", None, 1), Record(b"last", b"k", 0))
    job.run(once, SCHEMA, into=INTO, **individual(tmp_path, **AT_ONCE))
    assert held(job.table, spark) == {"k": "last", "other": "x"}


def test_spark_merges_nothing_of_a_driver_that_is_stopped_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has looked whether it still counts, and Delta knows the batch's transaction alone."""
    table = KeyedTable(tmp_path)
    table.merger = SparkWriter(spark, str(table.table))
    old = Driver("old", 1)
    new = Driver("new", 2, frozenset({"old"}), {"app": 0}, frozenset({"app"}))
    assert table.merge(0, table.staged((1, "a"), (2, "b")), driver=old) == Merged(0, 2, 0)
    staged = table.staged((1, "late"))
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        table.merge_too_late(1, staged, old, by=new)
    assert table.rows() == {1: "a", 2: "b"}
    again = Driver("old", 3)
    assert table.merge(1, staged, driver=again) == Merged(1, 0, 0)
    assert table.merge(1, staged, driver=again) == Merged()
    # What changes no row has its transaction too, and the log says whose batch it is.
    assert table.merge(2, table.staged((9, None), (8, None), files=2), driver=again) == Merged()
    assert DeltaTable(table.table).transaction_version("app") == 2
    assert table.rows() == {1: "late", 2: "b"}


def test_misuse(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = TableJob(spark, topics, tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"keys": ["ids"]}, r"has no column 'ids' \(did you mean 'id'\?\)"),
        ({"keys": []}, "keys names no column"),
        ({"keys": ["id", "id"]}, "names a column twice"),
        ({"keys": [7]}, "has no column '7'"),
        ({"deletes": "gone"}, "deletes needs keys"),
        ({"keys": ["id"], "deletes": "text"}, "'text' is string, and would be boolean"),
        ({"keys": ["gone"], "deletes": "gone"}, "'gone' is a key"),
        ({"keys": ["id"], "deletes": "away"}, "deletes: the output has no column 'away'"),
    ]
    for into, text in wrong:
        with pytest.raises(KeyrangeError, match=text):
            job.start(last_text, SCHEMA, into=into)
    for kind in ("double", "float", "array<int>", "struct<a: int>", "map<int, int>"):
        with pytest.raises(KeyrangeError, match=r"column .d. is .*, and a key is a text"):
            job.start(last_text, f"d {kind}", into={"keys": ["d"]})
    with pytest.raises(KeyrangeError, match="keys need keyOrder=keep"):
        job.start(last_text, SCHEMA, into=INTO, **individual(tmp_path, keyOrder="skipAhead"))
    assert not job.table.exists()
