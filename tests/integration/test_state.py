"""State for keys: `keyrange.job(..., state=...)` from a real topic into a real table."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from commands.commanding import document, refusal, run, succeed, text
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_table import SinkTable
from queries.individual import SOON, failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import committed

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "key string, n long, at long"
TOTAL = {"total": keyrange.ValueState("n long")}


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def own(home: Path, **given: str) -> dict[str, str]:
    return individual(home, splitBy="keyRange", **{"slot.directory": str(home / "slots")}, **given)


def count(record: Any, state: Any) -> Any:
    total = state.total.get(default=0) + 1
    state.total.update(total)
    return record.key.decode(), total, record.offset


def count_batches(records: pa.RecordBatch, groups: Any, state: pa.RecordBatch) -> Any:
    before = pc.fill_null(pc.struct_field(state.column("total"), "n"), 0).to_numpy()
    numbers = groups.to_numpy()
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.r_[True, np.diff(numbers[order]) != 0])
    within = np.empty(len(numbers), np.int64)
    lengths = np.diff(np.r_[begins, len(numbers)])
    within[order] = np.arange(len(numbers)) - np.repeat(begins, lengths) + 1
    output = pa.RecordBatch.from_arrays(
        [
            records.column("key").cast(pa.string()),
            pa.array(before[numbers] + within),
            records.column("offset"),
        ],
        names=["key", "n", "at"],
    )
    after = before + np.bincount(numbers, minlength=len(before))
    total = pa.StructArray.from_arrays([pa.array(after)], ["n"])
    return output, pa.RecordBatch.from_arrays([total], ["total"])


def counted(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Of each key the numbers in the order of its offsets."""
    found: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        found.setdefault(row["key"], []).append(row["n"])
    return found


def is_a_fold(rows: list[dict[str, Any]]) -> bool:
    return all(numbers == [*range(1, len(numbers) + 1)] for numbers in counted(rows).values())


def records(start: int, stop: int, keys: int = 40) -> list[Record]:
    """Each key in one partition."""
    return [Record(b"%d" % n, b"k%d" % (n % keys), n % keys % 2) for n in range(start, stop)]


# Record by record is what all others here do.
@pytest.mark.parametrize("mode", [pytest.param("record", marks=pytest.mark.slow), "arrow"])
def test_a_running_count_over_batches_and_restarts(
    job: TableJob, tmp_path: Path, mode: str
) -> None:
    function = count if mode == "record" else count_batches
    given = own(tmp_path, maxOffsetsPerTrigger="110", keyRangesPerPartition="3")
    for start, stop in ((0, 200), (200, 210), (210, 410)):
        job.produce(*records(start, stop))
        query = job.run(function, SCHEMA, mode, state=TOTAL, **given)
    rows = job.rows()
    assert len(rows) == 410
    assert is_a_fold(rows)
    figures = [progress["observedMetrics"]["keyrange"] for progress in query.recentProgress]
    assert sum(each["state_restored_bytes"] or 0 for each in figures) == 0
    assert sum(each["state_changed"] or 0 for each in figures) > 0


def test_a_record_that_fails_leaves_no_state_behind(job: TableJob, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def work(record: Any, state: Any) -> Any:
        row = count(record, state)
        if record.value == b"!" and not gate.exists():
            raise ValueError("not yet")
        return row

    job.produce(*(Record(b"!" if n == 5 else b"", b"k%d" % (n % 3), 0) for n in range(12)))
    job.run(work, SCHEMA, state=TOTAL, **own(tmp_path, **SOON))
    # What comes of its key behind it waits.
    assert counted(job.rows()) == {"k0": [1, 2, 3, 4], "k1": [1, 2, 3, 4], "k2": [1]}
    gate.touch()
    job.run_until(12, work, SCHEMA, state=TOTAL, **own(tmp_path, **SOON))
    assert counted(job.rows())["k2"] == [1, 2, 3, 4]


def test_records_that_come_again_beside_others_of_their_partition(
    job: TableJob, tmp_path: Path
) -> None:
    """Tasks share partitions, and some records come again with each batch."""

    def work(record: Any, state: Any) -> Any:
        row = count(record, state)
        if int(record.value) % 50 == 7 and record.deliveries < 2:
            raise ValueError("not yet")
        return row

    given = own(
        tmp_path,
        keyRangesPerPartition="4",
        bytesPerTask="0",
        maxOffsetsPerTrigger="100",
        **{"redelivery.backoff": "0", "availableNow.redelivery": "drain"},
    )
    job.produce(*records(0, 300))
    job.run(work, SCHEMA, state=TOTAL, **given)
    assert len(job.rows()) == 300
    assert is_a_fold(job.rows())


def test_records_without_a_key_are_given_up(job: TableJob, tmp_path: Path) -> None:
    job.produce(Record(b"", b"a", 0), Record(b"", None, 0), Record(b"", b"a", 0))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    assert counted(job.rows()) == {"a": [1, 2]}
    from deltalake import DeltaTable

    [letter] = DeltaTable(tmp_path / "commits_dead_letters").to_pyarrow_table().to_pylist()
    assert (letter["offset"], "no key" in letter["error"]) == (1, True)


def test_the_same_ranges_cut_otherwise(job: TableJob, tmp_path: Path) -> None:
    for at, cut in enumerate(["1", "5", "2"]):
        job.produce(*records(at * 100, at * 100 + 100))
        job.run(count, SCHEMA, state=TOTAL, **own(tmp_path, keyRangesPerPartition=cut))
    assert is_a_fold(job.rows())
    assert len(job.rows()) == 300


def test_a_recreated_topic_begins_without_state(job: TableJob, tmp_path: Path) -> None:
    job.produce(*records(0, 50))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    job.topics.delete_topic(job.topic)
    job.topics.create_named(job.topic, 2)
    job.produce(*records(0, 50))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path, failOnDataLoss="false"))
    # Fifty records of forty keys, twice: ten keys have two each time.
    assert Counter(row["n"] for row in job.rows()) == {1: 80, 2: 20}


class Crash(RuntimeError):
    """The driver ends here."""


STEPS: tuple[tuple[type, str], ...] = (
    (VerdictStore, "publish"),
    (SinkTable, "append"),
    (DeltaCommitTable, "append"),
    (EachBatch, "_clean"),
)


# An end after a step leaves what one before the next step leaves.
@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_each_record_counts_once_wherever_the_driver_ends(
    job: TableJob, tmp_path: Path, before: bool
) -> None:
    """Each run finishes the batch in which the one before it ended, and ends in the next one."""
    given = own(tmp_path, keyRangesPerPartition="2")
    job.produce(*records(0, 120))
    queries = [job.run(count, SCHEMA, state=TOTAL, **given)]
    for batch_id, (owner, step) in enumerate(STEPS, 1):
        job.produce(*records(120 * batch_id, 120 * (batch_id + 1)))
        with pytest.MonkeyPatch.context() as patch:
            crash_in(patch, job, batch_id, owner, step, before)
            queries.append(job.start(count, SCHEMA, state=TOTAL, **given))
            assert f"at {step}" in failure_of(queries[-1])
        assert committed(job.checkpoint) == [*range(batch_id)]
    job.produce(*records(600, 720))
    queries.append(job.run(count, SCHEMA, state=TOTAL, **given))
    assert len(job.rows()) == 720
    assert is_a_fold(job.rows())
    told = [
        json.loads(progress.json)["observedMetrics"]["keyrange"]
        for query in queries
        for progress in query.recentProgress
    ]
    assert sum(each["state_restored_bytes"] or 0 for each in told) == 0


def crash_in(
    patch: pytest.MonkeyPatch, job: TableJob, batch_id: int, owner: type, step: str, before: bool
) -> None:
    """End the driver at a step of a batch that is not planned yet."""
    whole: Any = getattr(owner, step)

    def crashing(*arguments: Any, **named: Any) -> Any:
        # A run begins with a commit of no batch.
        begins = owner is DeltaCommitTable and arguments[1].batch_id < 0
        ends = not begins and (job.checkpoint / "offsets" / str(batch_id)).exists()
        answer = None if ends and before else whole(*arguments, **named)
        if ends:
            raise Crash(f"at {step}")
        return answer

    patch.setattr(owner, step, crashing)


def test_who_looks_at_it_sees_what_is_kept(job: TableJob, tmp_path: Path) -> None:
    commits = tmp_path / "commits"
    job.produce(*records(0, 200))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path, maxOffsetsPerTrigger="100"))
    shown = document("state", "show", commits)
    assert [(each["name"], each["kind"]) for each in shown["variables"]] == [("total", "value")]
    assert sum(each["keys"] for each in shown["partitions"]) == 40
    listed = document("state", "list", commits, "--limit", "1000")
    assert {row["key"]: row["state"] for row in listed["rows"]} == {
        f"k{key}": {"total": 5} for key in range(40)
    }
    some = run("state", "list", commits, "--limit", "3")
    assert "37 more keys; --limit shows more" in some.stderr
    few = document("state", "list", commits, "--limit", "3", "--topic", job.topic)
    assert (few["keys"], few["rows"]) == (40, listed["rows"][:3])
    [found] = document("state", "get", commits, "--key", "k7")["states"]
    assert (found["partition"], found["state"]) == (1, {"total": 5})
    before = document("state", "get", commits, "--key", "k7", "--at", shown["seq"] - 1)["states"]
    assert before[0]["state"] == {"total": 3}
    history = document("state", "history", commits, "--key", "k7")["rows"]
    assert [(row["batch_id"], row["state"]) for row in history] == [
        (1, {"total": 5}),
        (0, {"total": 3}),
    ]
    changed = document("state", "diff", commits, "--from", shown["seq"] - 1, "--limit", "1")
    assert (changed["new"], changed["changed"], changed["gone"]) == (0, 40, 0)
    verified = document("state", "verify", commits)
    assert verified["failures"] == []
    told = [line.split() for line in text("state", "show", commits).splitlines()]
    kept = {f"{each['topic']}-{each['partition']}": each["keys"] for each in shown["partitions"]}
    assert {row[0]: row[1] for row in told if row and row[0] in kept} == {
        name: str(keys) for name, keys in kept.items()
    }
    assert ["partition", "keys", "size"] in told
    uncounted = text("state", "show", commits, "--no-count")
    sizes = [line.split() for line in uncounted.splitlines() if f" {job.topic}-" in line]
    assert {len(cells) for cells in sizes} == {3}
    assert not {"runs", "rows", "files", "copies"} & set(uncounted.split())
    exported = tmp_path / "state.parquet"
    succeed("state", "export", commits, "--to", exported)
    totals = {f"k{key}": 5 for key in range(40)}
    rows = pq.read_table(exported).to_pylist()
    assert {row["key"].decode(): row["total"]["n"] for row in rows} == totals
    frame = keyrange.state(job.spark, str(commits))
    assert {bytes(row.key).decode(): row.total.n for row in frame.collect()} == totals
    earlier = keyrange.state(job.spark, str(commits), at=shown["seq"] - 1)
    assert sum(row.total.n for row in earlier.collect()) == 100
    # The owner of a key is named with the place of its copy.
    asked = ("--topic", job.topic, "--bootstrap-servers", job.topics.cluster.bootstrap_servers)
    where = ("--commits", commits, "--option", f"slot.directory={tmp_path / 'slots'}")
    told = {
        document("ranges", "owner", "--key", f"k{key}", *asked, *where)["state_copies"]
        for key in range(10)
    }
    assert told == {str(each.parent) for each in (tmp_path / "slots").rglob("*.arrow")}
    assert len(told) == 2


def test_a_file_that_is_damaged_or_gone_is_named(job: TableJob, tmp_path: Path) -> None:
    job.produce(*records(0, 100))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    job.produce(*records(100, 200))
    file = next((tmp_path / "commits_state").rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    result = run("state", "verify", tmp_path / "commits")
    assert result.exit_code == 1
    assert file.name in result.stdout
    # The copy of this host is as it was written.
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    assert is_a_fold(job.rows())
    job.produce(*records(200, 300))
    for each in (tmp_path / "commits_state").rglob("*.parquet"):
        each.unlink()
    shutil.rmtree(tmp_path / "slots")
    text = failure_of(job.start(count, SCHEMA, state=TOTAL, **own(tmp_path)))
    assert "[STATE_GONE]" in text


def test_a_reset_takes_the_state_back(job: TableJob, tmp_path: Path) -> None:
    commits, given = tmp_path / "commits", own(tmp_path, maxOffsetsPerTrigger="100")
    job.produce(*records(0, 300))
    job.run(count, SCHEMA, state=TOTAL, **given)
    reset = ["commits", "reset", commits, "--topic", job.topic, "--why", "again", "--confirm"]
    said = refusal(*reset, "--partition", "0", "--to", "60")
    assert "its keys have state" in said
    assert "50 (commit:" in said
    document(*reset, "--partition", "0", "--to", "50")
    job.produce(*records(300, 400))
    job.run(count, SCHEMA, state=TOTAL, **given)
    # Those that came again have the numbers that they had.
    found = counted(job.rows())
    assert found["k0"] == [*range(1, 4), 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 10][: len(found["k0"])]
    assert found["k1"] == [*range(1, 11)]
    totals = document("state", "get", commits, "--key", "k0")["states"][0]["state"]
    assert totals == {"total": 10}


OTHERS = (
    ({"other": keyrange.ValueState("n long")}, "'total' is not among those of the job"),
    ({"total": keyrange.ValueState("n int")}, "'total' was bigint in field n, and int does not"),
    ({"total": keyrange.ValueState("m long")}, "'total' has no field n any more"),
    ({"total": keyrange.ListState("n long")}, "'total' was struct"),
)


def test_another_state_and_none_are_refused_before_a_record(job: TableJob, tmp_path: Path) -> None:
    job.produce(*records(0, 20))
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    job.produce(*records(20, 60))

    def never(*_: Any) -> Any:
        raise AssertionError("called")

    for state, reason in OTHERS:
        text = failure_of(job.start(never, SCHEMA, state=state, **own(tmp_path)))
        assert "[STATE_SCHEMA_CHANGED]" in text
        assert reason in text

    def plain(record: Any) -> Any:
        return record.key.decode(), 0, record.offset

    assert "[STATE_LEFT_OUT]" in failure_of(job.start(plain, SCHEMA, **own(tmp_path)))
    # Nothing of these is left that the next run would take for its own.
    assert len(job.rows()) == 20
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    assert len(job.rows()) == 60
    assert is_a_fold(job.rows())


def test_fields_are_added_and_widened(job: TableJob, tmp_path: Path) -> None:
    narrow = {"total": keyrange.ValueState("n int")}
    job.produce(*records(0, 60))
    job.run(count, SCHEMA, state=narrow, **own(tmp_path))

    def with_last(record: Any, state: Any) -> Any:
        total, _ = state.total.get(default=(0, None))
        state.total.update((total + 1, record.value))
        return record.key.decode(), total + 1, record.offset

    wide = {
        "total": keyrange.ValueState("n long, last binary"),
        "seen": keyrange.ListState("n int"),
    }
    job.produce(*records(60, 200))
    job.run(with_last, SCHEMA, state=wide, **own(tmp_path))
    assert is_a_fold(job.rows())
    assert len(job.rows()) == 200
