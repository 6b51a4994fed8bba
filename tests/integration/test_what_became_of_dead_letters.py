"""A dead letter is found by its record: drivers that end before they commit, resets, replays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from commands.commanding import document, succeed
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "at long, n long"
NO_WAIT = {"maxDeliveries": "1", "redelivery.backoff": "0", "availableNow.redelivery": "drain"}


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    found = TableJob(spark, topics, tmp_path, partitions=1)
    found.produce(*(Record(b"v", b"k%d" % (at % 2), 0) for at in range(5)))
    return found


def failing(*offsets: int) -> Any:
    def work(record: Any, state: Any) -> Any:
        if record.offset in offsets:
            raise KeyError("x")
        n = state.n.get(default=0) + 1
        state.n.update(n)
        return record.offset, n

    return work


def run(job: TableJob, *offsets: int, **given: str) -> None:
    state = {"n": keyrange.ValueState("n long")}
    own = individual(job.home, splitBy="keyRange", **NO_WAIT, **given)
    job.run(failing(*offsets), SCHEMA, state=state, **own)


def is_done_once(job: TableJob, *given_up: int) -> None:
    """Each record once, and in the state of its key."""
    assert sorted(row["at"] for row in job.rows()) == sorted({*range(6)} - {*given_up})
    kept = keyrange.state(job.spark, str(job.home / "commits")).collect()
    assert sum(row.n.n for row in kept) == 6 - len(given_up)


def test_a_letter_has_the_headers_and_says_where_its_error_was_raised(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    def price(value: bytes) -> float:
        return float(value)

    def work(record: Any) -> Any:
        return record.offset, price(record.value)

    job = TableJob(spark, topics, tmp_path, partitions=1)
    headers = (("trace", b"1"), ("trace", b"2"))
    job.produce(Record(b"1.5", b"k", 0), Record(b"x", b"k2", 0, None, headers))
    job.run(work, "at long, price double", **individual(tmp_path, **NO_WAIT))
    assert job.rows() == [{"at": 0, "price": 1.5}]
    [letter] = document("deadletters", "list", tmp_path / "commits")
    name, line = Path(__file__).name, price.__code__.co_firstlineno + 1
    assert letter["headers"] == [["trace", "1"], ["trace", "2"]]
    assert letter["error"] == (
        f"ValueError: could not convert string to float: b'x' ({name}, line {line}, in price)"
    )
    assert letter["frames"] == [
        f"{name}, line {line + 3}, in work",
        f"{name}, line {line}, in price",
    ]
    whole = TableJob(spark, topics, tmp_path / "whole", partitions=1)
    whole.produce(b"x")
    with pytest.raises(KeyrangeError, match=f"({name}, line {line}, in price)"):
        whole.run(work, "at long, price double")


def test_an_error_of_the_program_leaves_no_letter(job: TableJob) -> None:
    def work(_: Any) -> Any:
        return prices  # type: ignore[name-defined]  # noqa: F821

    line = work.__code__.co_firstlineno + 1
    own = individual(job.home, splitBy="keyRange", **NO_WAIT)
    with pytest.raises(KeyrangeError) as raised:
        job.run(work, SCHEMA, **own)
    assert "[FUNCTION_FAILED] 5 of the first 5 records ended in an error of the program: " in str(
        raised.value
    )
    assert f"NameError: name 'prices' is not defined ({Path(__file__).name}, line {line}" in str(
        raised.value
    )
    assert letters(job) == {"dead": [], "replayed": []}
    job.run(failing(3), SCHEMA, state={"n": keyrange.ValueState("n long")}, **own)
    assert letters(job) == {"dead": [3], "replayed": []}


def letters(job: TableJob) -> dict[str, list[int]]:
    """The offsets of letters by their status."""
    found: dict[str, list[int]] = {"dead": [], "replayed": []}
    for each in document("deadletters", "list", job.home / "commits"):
        found[each["status"]].append(each["offset"])
    return found


def change(job: TableJob, *command: object) -> Any:
    why = ("--why", "mended", "--checkpoint", job.checkpoint, "--confirm")
    return document(*command[:2], job.home / "commits", *command[2:], *why)


@pytest.mark.parametrize(
    ("anew", "first", "then", "left"),
    [
        # The manifest says what the batch has given up.
        (False, {1, 3}, (), {1, 3}),
        # Only a batch without output can be begun again from another checkpoint.
        pytest.param(True, {*range(5)}, (), set(), marks=pytest.mark.slow),
        (True, {*range(5)}, (3,), {3}),
        pytest.param(True, {*range(5)}, (0, 1, 2, 3, 4), {*range(5)}, marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_ended_before_it_committed(
    job: TableJob, anew: bool, first: set[int], then: tuple[int, ...], left: set[int]
) -> None:
    """The batch runs again, from the same checkpoint or from a new one that resumes, and its
    function may have been mended: a letter for each record that it gives up, whoever wrote it."""

    def crashing(table: Any, commit: Any, *more: Any, **named: Any) -> Any:
        if commit.batch_id < 0:
            return append(table, commit, *more, **named)
        raise RuntimeError("the driver ends here")

    append = DeltaCommitTable.append
    state = {"n": keyrange.ValueState("n long")}
    own = individual(job.home, splitBy="keyRange", **NO_WAIT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaCommitTable, "append", crashing)
        assert "ends here" in failure_of(job.start(failing(*first), SCHEMA, state=state, **own))
    assert letters(job) == {"dead": sorted(first), "replayed": []}
    if anew:
        job.checkpoint = job.home / "another"
    run(job, *then, **({"commitTable.onFreshStart": "resume"} if anew else {}))
    # The run after that finds the same letters.
    job.produce(Record(b"v", b"k0", 0))
    run(job, *then)
    assert letters(job) == {"dead": sorted(left), "replayed": sorted(first - left)}
    table = DeltaTable(job.home / "commits_dead_letters").to_pyarrow_table()
    assert table.column("kind").to_pylist().count("dead") == len(first)
    is_done_once(job, *left)
    change(job, "deadletters", "replay", "--all")
    run(job)
    is_done_once(job)
    assert letters(job) == {"dead": [], "replayed": sorted(first)}


def test_a_reset_below_a_letter(job: TableJob) -> None:
    run(job, 1, 4, maxOffsetsPerTrigger="1")
    where = ("--topic", job.topic, "--partition", 0, "--to", 1)
    change(job, "commits", "reset", *where)
    assert letters(job) == {"dead": [], "replayed": [1, 4]}
    # One of them is given up once more: of its two letters the later one counts.
    run(job, 4)
    assert letters(job) == {"dead": [4], "replayed": [1, 4]}
    shown = succeed("deadletters", "show", job.home / "commits", f"{job.topic}-0:1").stdout
    assert ", a reset" in shown
    replayed = change(job, "deadletters", "replay", "--all")["replayed"]
    assert [each["offset"] for each in replayed] == [4]
    run(job)
    kept = keyrange.state(job.spark, str(job.home / "commits")).collect()
    assert sum(row.n.n for row in kept) == 5
    assert change(job, "deadletters", "replay", "--all")["replayed"] == []
