"""Jobs with commit.isolation=transactional: what is done above a record that is not waits, in
tables and topics, and comes once when everything before it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics, wait_until
from commands.commanding import succeed
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.table_output import BatchOutput
from keyrange.individual_commits.topic_output import TopicOutput
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_table import SinkTable
from queries.held_jobs import RETRIES, HeldJob
from queries.table_jobs import TableJob, individual

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    NEEDS_TRANSACTIONS,
]

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> Iterator[HeldJob]:
    yield HeldJob(spark, topics, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_what_is_done_behind_a_record_waits_for_it_over_batches(job: HeldJob) -> None:
    job.produce("a1", "b1", "!c1", "a2", "c2")
    job.run()
    job.check()
    job.produce("a3", "b2", "e1")
    job.run()
    job.check()
    job.produce("!e2", "a4")
    job.run_mended()
    job.check()
    job.check_versions()
    job.produce("a5")
    job.run()
    job.check()
    # Nothing is left of batches whose rows are out.
    [verdicts] = (job.home / "commits_verdicts").iterdir()
    assert len([each for each in verdicts.iterdir() if each.name.isdecimal()]) <= 2


STEPS = [
    (VerdictStore, "publish", False),
    (BatchOutput, "release", True),
    (VerdictStore, "release", True),
    (VerdictStore, "release", False),
    (SinkTable, "append", False),
    (SinkTable, "write", False),
    (TopicOutput, "write", False),
    (DeltaCommitTable, "append", True),
    (DeltaCommitTable, "append", False),
]
# A driver that has released, and written one table of several.
ORDINARY = [(SinkTable, "append", False)]


@pytest.mark.parametrize(
    ("owner", "step", "before", "releases"),
    [
        pytest.param(
            *each,
            releases,
            id=f"{each[0].__name__}-{each[1]}-{'before' if each[2] else 'after'}-{what}",
            marks=[] if releases and each in ORDINARY else [pytest.mark.slow],
        )
        for each in STEPS
        for releases, what in ((False, "holds"), (True, "releases"))
    ],
)
def test_each_row_once_wherever_the_driver_ends(
    job: HeldJob,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
    releases: bool,
) -> None:
    job.produce("a1", "b1", "!c1", "a2")
    job.run()
    job.produce("a3", "b2")
    if releases:
        job.mend()
    job.crash(monkeypatch, owner, step, before, at=1)
    job.produce("a4", "c2")
    if not releases:
        job.run()
        job.check()
    job.run_mended()
    job.check()
    job.check_versions()


def test_what_waits_comes_once_where_somebody_resets_the_commits(job: HeldJob) -> None:
    job.produce("a1", "b1", "!c1", "a2", "c2", "e1")
    job.run()
    # a2 and e1 are done, wait, and are worked on once more.
    reset = ("commits", "reset", str(job.commits), "--topic", job.source, "--partition", 1)
    succeed(*reset, "--to", 1, "--why", "wrong prices", "--confirm")
    job.produce("a3")
    job.run()
    job.check()
    job.run_mended()
    job.check()
    job.check_versions()


def test_state_goes_on_and_its_rows_wait(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job, gate = TableJob(spark, topics, tmp_path, 1), tmp_path / "gate"

    def work(record: Any, state: Any) -> Any:
        if record.value == b"!" and not gate.exists():
            raise ValueError("not yet")
        n = state.n.get(default=0) + 1
        state.n.update(n)
        return (record.key.decode(), n)

    def run() -> list[tuple[str, int]]:
        job.run(
            work,
            "key string, n long",
            state={"n": keyrange.ValueState("n long")},
            **individual(tmp_path, splitBy="keyRange", maxDeliveries="1000", **RETRIES),
            **{"commit.isolation": "transactional", "slot.directory": str(tmp_path / "slots")},
        )
        return sorted((row["key"], row["n"]) for row in job.rows())

    job.produce(*(Record(value, key) for key, value in ((b"b", b""), (b"a", b"!"), (b"b", b""))))
    assert run() == [("b", 1)]
    job.produce(Record(b"", b"b"), Record(b"", b"a"))
    assert run() == [("b", 1)]
    gate.touch()
    wait_until(lambda: len(run()) == 5)
    assert run() == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]


def test_rows_of_batches_say_which_records_they_wait_with(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job, gate = TableJob(spark, topics, tmp_path, 1), tmp_path / "gate"

    def work(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value").to_pylist()
        if b"!" in values and not gate.exists():
            raise ValueError("not yet")
        # Each record has two rows, in another order than they came.
        at = [*range(batch.num_rows - 1, -1, -1)] * 2
        return batch.select(["topic", "partition", "offset"]).take(pa.array(at, pa.int64()))

    def run() -> list[int]:
        job.run(
            work,
            "topic string, partition int, offset long",
            "arrow",
            **individual(tmp_path, maxDeliveries="1000", **RETRIES),
            **{"commit.isolation": "transactional"},
        )
        return sorted(row["offset"] for row in job.rows())

    job.produce(*(Record(each, each) for each in (b"a", b"b", b"!", b"c", b"d")))
    assert run() == [0, 0, 1, 1]
    gate.touch()
    wait_until(lambda: len(run()) == 10)
    assert run() == sorted([*range(5)] * 2)
