"""A driver of a `keyrange.job` that ends at any step of a batch: the next one finds every record
once, and works on none again whose manifest is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import keyrange
from brokers.real_broker import Topics
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_table import SinkTable
from queries.crashing_jobs import SCHEMA, CrashingJob
from queries.individual import failure_of
from spark.sources import committed, planned_offsets, run_available_now

MODES = ["batch", "individual"]


@pytest.fixture(params=MODES)
def job(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[CrashingJob]:
    yield CrashingJob(spark, topics, tmp_path, request.param)
    for query in spark.streams.active:
        query.stop()


# A step, whether it ends before it, and whether a manifest is there then.
STEPS = [
    (VerdictStore, "publish", True, False),
    (VerdictStore, "publish", False, True),
    (SinkTable, "append", True, True),
    (SinkTable, "append", False, True),
]
OF_COMMITS = [
    (DeltaCommitTable, "append", True, True),
    (DeltaCommitTable, "append", False, True),
    (EachBatch, "_clean", True, True),
]


@pytest.mark.parametrize(
    ("job", "owner", "step", "before", "has_manifest"),
    [
        # An end after a step leaves what one before the next step leaves: once is enough. And
        # test_state.py ends drivers at the steps of individual commits too, with more to lose.
        pytest.param(
            mode,
            *each,
            id=f"{mode}-{each[1]}-{'before' if each[2] else 'after'}",
            marks=[] if each in ordinary else [pytest.mark.slow],
        )
        for mode, steps, ordinary in (
            ("batch", STEPS, [STEPS[0], STEPS[2], STEPS[3]]),
            ("individual", STEPS + OF_COMMITS, [OF_COMMITS[0]]),
        )
        for each in steps
    ],
    indirect=["job"],
)
def test_every_record_once_wherever_the_driver_ends(
    job: CrashingJob,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
    has_manifest: bool,
) -> None:
    job.produce("a", "b", "c")
    job.run()
    # One that is not done stands in a file of outcomes.
    job.produce("d", *(["!"] if job.mode == "individual" else []), "e")
    assert f"at {step}" in job.crash(monkeypatch, owner, step, before)
    assert committed(job.checkpoint) == [0]
    count = len(job.worked_on)
    # Another function does not do again what there is a manifest of.
    job.produce("z")
    job.run("2")
    first = {0: "a", 1: "b", 2: "c"}
    if job.mode == "batch":
        again = {3: "d", 4: "e"} if has_manifest else {3: "d2", 4: "e2"}
        assert job.rows() == first | again | {5: "z2"}
        assert len(job.worked_on) == count + 1 + (0 if has_manifest else 2)
    else:
        again = {3: "d", 4: "!2", 5: "e"} if has_manifest else {3: "d2", 4: "!2", 5: "e2"}
        assert job.rows() == first | again | {6: "z2"}
        assert len(job.worked_on) == count + 1 + (1 if has_manifest else 3)
    left = sorted(each.name for each in job.verdicts.iterdir())
    assert left == [str(max(committed(job.checkpoint)))]


def crashed(job: CrashingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with a manifest and without its transaction."""
    job.produce("a", "b")
    assert "at append" in job.crash(monkeypatch, SinkTable, "append", before=True)


@pytest.mark.parametrize(
    "job", ["batch", pytest.param("individual", marks=pytest.mark.slow)], indirect=True
)
def test_what_the_next_run_may_not_change(
    job: CrashingJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crashed(job, monkeypatch)
    other = str(tmp_path / "other")
    text = failure_of(job.start(schema="at long"))
    assert "[BATCH_UNFINISHED]" in text
    assert "is at long, text string, and is to be at long" in text
    with pytest.raises(KeyrangeError, match=rf"OTHER_TABLE.*written to {job.table}, and is to"):
        job.start(table=other)
    job.run("2")
    assert job.rows() == {0: "a", 1: "b"}
    # Of a batch that is finished only its table still matters.
    job.produce("c")
    with pytest.raises(KeyrangeError, match=rf"OTHER_TABLE.*written to {job.table}, and is to"):
        job.start(table=other)
    assert not Path(other).exists()
    job.run("2")
    assert job.rows() == {0: "a", 1: "b", 2: "c2"}


@pytest.mark.parametrize(
    ("job", "happens"),
    [
        ("batch", "vacuumed"),
        ("individual", "replaced"),
        pytest.param("batch", "replaced", marks=pytest.mark.slow),
        pytest.param("individual", "vacuumed", marks=pytest.mark.slow),
    ],
    indirect=["job"],
)
def test_files_that_went_before_the_table_named_them(
    job: CrashingJob, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    crashed(job, monkeypatch)
    if happens == "vacuumed":
        table = DeltaTable(job.table)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    else:
        shutil.rmtree(job.table)
        with pytest.raises(KeyrangeError, match=r"OTHER_TABLE.*was deleted or made again"):
            job.start()
        assert not Path(job.table).exists()
        return
    text = failure_of(job.start())
    assert "[VERDICT_DAMAGED]" in text
    assert "To mend it: " in text
    assert job.rows() == {}
    assert committed(job.checkpoint) == []


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_a_batch_is_finished_by_who_began_it(
    job: CrashingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(job, monkeypatch)
    seen: list[int] = []

    def sink(frame: Any, _: int) -> None:
        seen.extend(row.offset for row in frame.collect())

    with pytest.raises(Exception, match=r"\[BATCH_UNFINISHED\].* keyrange.job began"):
        run_available_now(job.plain(), job.checkpoint, sink)
    job.run()
    job.produce("c")
    run_available_now(job.plain(), job.checkpoint, sink)
    assert seen == [2]
    assert "sourceId" not in planned_offsets(job.checkpoint, 1)["@keyrange"]
    job.produce("d")

    def failing(*_: Any) -> None:
        raise LookupError

    with pytest.raises(Exception, match="LookupError"):
        run_available_now(job.plain(), job.checkpoint, failing)
    text = failure_of(job.start())
    assert "[BATCH_UNFINISHED]" in text
    assert "a sink of Spark's began" in text
    run_available_now(job.plain(), job.checkpoint, sink)
    job.produce("e")
    job.run()
    assert seen == [2, 3]
    assert job.rows() == {0: "a", 1: "b", 4: "e"}


@pytest.mark.parametrize("job", ["individual"], indirect=True)
def test_a_batch_of_records_is_finished_by_who_began_it(
    job: CrashingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere its output would be missing, or be there twice."""
    crashed(job, monkeypatch)
    seen: list[int] = []

    def body(batch: DataFrame, _: int) -> None:
        kept = keyrange.process(batch, lambda record: (record.offset, ""), SCHEMA)
        seen.extend(row["at"] for row in kept.collect())

    def run(body: Callable[[DataFrame, int], None]) -> None:
        source = job.spark.readStream.format("keyrange").options(**job.options).load()
        each = keyrange.each_batch(body, job.options, str(job.checkpoint))
        run_available_now(source, job.checkpoint, each)

    with pytest.raises(Exception, match=r"\[BATCH_UNFINISHED\].* go to keyrange.process"):
        run(body)
    job.run()
    job.produce("c")

    def failing(batch: DataFrame, number: int) -> None:
        body(batch, number)
        raise LookupError

    with pytest.raises(Exception, match="LookupError"):
        run(failing)
    assert "[BATCH_UNFINISHED]" in failure_of(job.start())
    run(body)
    assert (job.rows(), seen) == ({0: "a", 1: "b"}, [2, 2])
