"""Values that cannot be read, of a `keyrange.job` that commits whole batches: each is a dead letter
once, wherever the driver ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from keyrange.errors import InvalidError
from keyrange.individual_commits.table.dead_letters import DeadLetters
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_table import SinkTable
from queries.crashing_jobs import Crash
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import options

GOOD, BAD = b'{"id": 7}', b'{"id": "x"}'
TYPED = {"valueFormat": "json", "valueSchema": "id bigint", "badValues": "deadLetter"}


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def own(job: TableJob) -> dict[str, str]:
    return {**TYPED, "deadLetterTable": str(job.home / "dead")}


def letters(job: TableJob, table: str = "dead") -> list[tuple[Any, ...]]:
    path = str(job.home / table)
    if not DeltaTable.is_deltatable(path):
        return []
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    fields = ("partition", "offset", "key", "value", "cause", "attempts")
    return sorted(tuple(row[name] for name in fields) for row in rows)


def crash(monkeypatch: pytest.MonkeyPatch, start: Callable[[], Any], *at: Any) -> None:
    owner, step, before = at
    whole = getattr(owner, step)

    def crashing(*arguments: Any, **named: Any) -> Any:
        if not before:
            whole(*arguments, **named)
        raise Crash(f"at {step}")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crashing)
        assert f"at {step}" in failure_of(start())


@pytest.mark.parametrize(
    "at",
    [
        (VerdictStore, "publish", True),
        pytest.param((VerdictStore, "publish", False), marks=pytest.mark.slow),
        pytest.param((DeadLetters, "append", True), marks=pytest.mark.slow),
        (DeadLetters, "append", False),
        (SinkTable, "append", False),
    ],
    ids=lambda at: f"{'before' if at[2] else 'after'}-{at[0].__name__}-{at[1]}",
)
def test_each_is_a_letter_once_wherever_the_driver_ends(
    job: TableJob, monkeypatch: pytest.MonkeyPatch, at: tuple[type, str, bool]
) -> None:
    job.produce(Record(GOOD, b"a", 0), Record(BAD, b"a", 0), Record(GOOD, b"a", 0))
    job.run(**own(job))
    first = [(0, 1, b"a", BAD, "unreadable", 1)]
    assert letters(job) == first
    job.produce(Record(BAD, b"b", 1), Record(GOOD, b"b", 1), Record(None, b"b", 1))
    crash(monkeypatch, lambda: job.start(**own(job)), *at)
    later = [] if at[0] is VerdictStore or at == (DeadLetters, "append", True) else [1]
    assert letters(job) == first + [(1, 0, b"b", BAD, "unreadable", 1)] * len(later)
    job.produce(Record(BAD, None, 0))
    job.run(**own(job))
    assert letters(job) == sorted(
        [
            *first,
            (1, 0, b"b", BAD, "unreadable", 1),
            (0, 3, None, BAD, "unreadable", 1),
        ]
    )
    assert sorted(row["id"] or 0 for row in job.rows()) == [0, 7, 7, 7]
    [source] = (job.checkpoint / "keyrange").iterdir()
    assert len([each for each in source.iterdir() if each.name.isdecimal()]) == 1


def test_many_bad_values_of_a_function_and_what_a_letter_says(job: TableJob) -> None:
    """More than a row that is handed on may hold: they are in a file beside the output."""

    def work(record: Any) -> Any:
        return (record.value.id + 1,)

    large = b'{"id": "%s"}' % (b"x" * 200)
    job.produce(*(Record(large if n % 2 else GOOD, b"k%d" % n, n % 2) for n in range(2000)))
    query = job.run(work, "next bigint", **own(job))
    assert {row["next"] for row in job.rows()} == {8}
    assert len(job.rows()) == 1000
    rows = DeltaTable(job.home / "dead").to_pyarrow_table().to_pylist()
    assert [each["value"] for each in rows] == [large] * 1000
    assert {each["offset"] for each in rows} == set(range(1000))
    assert {each["error"] for each in rows} == {rows[0]["error"]}
    assert "id" in rows[0]["error"]
    assert "xxx" not in rows[0]["error"]
    assert {each["query_id"] for each in rows} == {str(query.id)}
    assert {each["topic"] for each in rows} == {job.topic}


def test_a_function_that_raises_still_fails_the_batch(job: TableJob) -> None:
    def work(record: Any) -> Any:
        raise ValueError("no")

    job.produce(Record(BAD, b"", 0), Record(GOOD, b"", 0))
    assert "[RECORD_FAILED]" in failure_of(job.start(work, "n int", **own(job)))
    assert letters(job) == []


def test_keys_and_several_tables(job: TableJob, spark: SparkSession) -> None:
    job.produce(Record(GOOD, b"a", 0), Record(b'{"id": 8}', b"b", 0), Record(BAD, b"b", 0))
    given = options(job.topics, job.topic, startingOffsets="earliest", **own(job))

    def work(record: Any) -> Any:
        return {"last": (record.key, record.value.id), "all": (record.value.id,)}

    schemas = {"last": "k binary, id bigint", "all": "id bigint"}
    paths = {name: str(job.home / name) for name in schemas}
    writer = keyrange.job(given, work, schemas).into(
        paths, str(job.checkpoint), keys={"last": ["k"]}, evolve="add", spark=spark
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    found = {
        name: sorted(row["id"] for row in DeltaTable(path).to_pyarrow_table().to_pylist())
        for name, path in paths.items()
    }
    assert found == {"last": [7, 8], "all": [7, 8]}
    assert letters(job) == [(0, 2, b"b", BAD, "unreadable", 1)]


@pytest.mark.parametrize("change", [{"badValues": "null"}, {"deadLetterTable": "other"}])
def test_letters_of_a_batch_go_where_its_manifest_says(
    job: TableJob, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    job.produce(Record(GOOD, b"a", 0), Record(BAD, b"a", 0))
    crash(monkeypatch, lambda: job.start(**own(job)), VerdictStore, "publish", False)
    changed = {
        name: each.replace("other", str(job.home / "other")) for name, each in change.items()
    }
    text = failure_of(job.start(**own(job) | changed))
    assert "[BATCH_UNFINISHED]" in text
    assert f"go to table {job.home / 'dead'}" in text
    job.run(**own(job))
    assert letters(job) == [(0, 1, b"a", BAD, "unreadable", 1)]
    job.run(**own(job) | changed)


def test_a_data_frame_has_no_place_for_them(job: TableJob, spark: SparkSession) -> None:
    given = options(job.topics, job.topic, **own(job))
    for read in (spark.readStream, spark.read):
        with pytest.raises(Exception, match="badValues=column"):
            read.format("keyrange").options(**given).load()
    with pytest.raises(InvalidError, match="needs deadLetterTable or commitTable"):
        keyrange.job(options(job.topics, job.topic, **TYPED))


def test_a_schema_that_no_value_fits_stops_the_query(job: TableJob) -> None:
    """Also beside tombstones, which fit any, and with individual commits."""
    job.produce(Record(None, b"gone", 0))
    job.produce(*(Record(BAD, b"%d" % n, n % 2) for n in range(12)))
    text = failure_of(job.start(**own(job)))
    assert "[TOO_MANY_FAILURES] 12 of 13 records failed" in text
    checkpoint, job.checkpoint = job.checkpoint, job.home / "individual"
    text = failure_of(job.start(**TYPED, **individual(job.home)))
    assert "[TOO_MANY_FAILURES] 12 of 13 records failed" in text
    job.checkpoint = checkpoint
    assert letters(job) == []
    job.run(**own(job), maxFailureRatio="1")
    assert len(letters(job)) == 12
