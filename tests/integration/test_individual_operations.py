"""What people do to queries that commit individually, while they run and between runs: every record
stays once in the sink."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Topics, wait_until
from commands.commanding import succeed
from keyrange.individual_commits.model import driver_takeover
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.storage.model.sink_driver import Driver
from queries.individual import AT_ONCE, LATER, Job, failure_of, mended, parse, values

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.usefixtures("no_query_left")

MakeJob = Callable[..., Job]


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create_topic("operated", 2)


@pytest.fixture
def job(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> MakeJob:
    return partial(Job, spark, topics, topic, tmp_path)


def let_begin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers write that they have begun when both have looked who else there is: the one that
    looked first, which goes on, and then the other."""
    append, begin = DeltaCommitTable.append, driver_takeover.begin
    both, is_first_on = threading.Barrier(2), threading.Event()
    made: list[int] = []

    def append_together(table: DeltaCommitTable, commit: Commit, *begun: Any) -> None:
        if commit.kind is CommitKind.FENCE:
            made.append(commit.committed_at_ms)
            both.wait(120)
            if commit.committed_at_ms > min(made):
                assert is_first_on.wait(240)
        append(table, commit, *begun)

    def begin_and_say_so(*arguments: Any, **named: Any) -> Driver:
        driver = begin(*arguments, **named)
        is_first_on.set()
        return driver

    monkeypatch.setattr(driver_takeover, "begin", begin_and_say_so)
    monkeypatch.setattr(DeltaCommitTable, "append", append_together)


def test_of_two_queries_that_begin_at_once_one_goes_on(
    job: MakeJob, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.produce(topic, values(range(20)))
    let_begin_together(monkeypatch)
    jobs = [job(checkpoint=name, into=True) for name in ("first", "second")]
    queries = [each.start() for each in jobs]
    wait_until(lambda: not all(query.isActive for query in queries), 300)
    [(going_on, query)] = [pair for pair in zip(jobs, queries, strict=True) if pair[1].isActive]
    [(stopped, other)] = [pair for pair in zip(jobs, queries, strict=True) if pair[1] is not query]
    assert "[COMMITS_FENCED]" in failure_of(other)
    monkeypatch.undo()
    with pytest.raises(Exception, match=r"\[COMMITS_OF_ANOTHER_QUERY\]"):
        stopped.run()
    topics.produce(topic, values(range(20, 25)))
    # The query may read a part of them in a batch before the others are there.
    wait_until(lambda: len(going_on.numbers()) == 25 or not query.isActive, 300)
    assert going_on.numbers() == list(range(25))


def test_who_resumes_from_a_query_that_runs_stops_it(
    job: MakeJob, topics: Topics, topic: str, tmp_path: Path
) -> None:
    def waits(record: Any) -> Any:
        import time

        while int(record.value) >= 20 and not (tmp_path / "go").exists():
            time.sleep(0.05)
        return mended(record)

    topics.produce(topic, values(range(20)))
    old = job(checkpoint="old")
    replaced = old.start(waits)
    old.wait_for(replaced, 0)
    topics.produce(topic, values([20]))
    wait_until((old.checkpoint / "offsets" / "1").exists, 300)
    new = job(checkpoint="new", **{"commitTable.onFreshStart": "resume"})
    query = new.start()
    new.wait_for(query, 0)
    (tmp_path / "go").touch()
    assert "[COMMITS_FENCED]" in failure_of(replaced)
    with pytest.raises(Exception, match="COMMITS_FENCED"):
        old.run()
    topics.produce(topic, values([21]))
    new.wait_for(query, 1)
    assert sorted(new.numbers()) == list(range(22))


@pytest.mark.parametrize(
    "isolation", ["immediate", pytest.param("transactional", marks=pytest.mark.slow)]
)
def test_dead_letters_are_replayed_while_the_query_runs(
    job: MakeJob, topics: Topics, topic: str, isolation: str
) -> None:
    # keyrange writes no table of what waits.
    into = isolation == "immediate"
    query = job(into=into, **AT_ONCE, **{"maxDeliveries": "1", "commit.isolation": isolation})
    topics.produce(topic, values(range(40), failing=[3, 8, 9]))
    running = query.start(parse)
    query.wait_for(running, 0)
    succeed("deadletters", "replay", query.table, "--all", "--why", "mended", "--confirm")
    topics.produce(topic, values(range(40, 50)))
    assert "[COMMITS_FENCED]" in failure_of(running)
    query.run(mended)
    query.run(mended)
    assert query.numbers() == list(range(50))
    assert all(state.committed == state.position for state in query.known().states.values())


def test_positions_are_reset_while_the_query_runs(job: MakeJob, topics: Topics, topic: str) -> None:
    query = job(into=True, **LATER)
    topics.produce(topic, values(range(40)))
    running = query.start(parse)
    query.wait_for(running, 0)
    reset = ("commits", "reset", query.table, "--topic", topic, "--partition", 1, "--to", 15)
    succeed(*reset, "--why", "wrong prices", "--confirm")
    topics.produce(topic, values([40, 41]))
    assert "[COMMITS_FENCED]" in failure_of(running)
    query.run(mended)
    # Offset 15 of partition 1 is number 31.
    again = list(range(31, 40, 2))
    assert query.numbers() == sorted([*range(42), *again])
