"""Where a job finds event time, and what becomes of timers where the query is not what it was."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from project.forms import usually
from queries.individual import AT_ONCE, failure_of
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
HOUR = timedelta(hours=1)
TIME = keyrange.EventTime()
STATE = {"n": keyrange.ValueState("n long")}
SCHEMA = "key string, n long, at timestamp"


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def own(home: Path, **given: str) -> dict[str, str]:
    return individual(home, splitBy="keyRange", **{"slot.directory": str(home / "slots")}, **given)


@pytest.mark.parametrize("late", usually("deadLetter", "drop"))
def test_a_header_may_say_the_time(job: TableJob, tmp_path: Path, late: Any) -> None:
    """The records own times are those of now."""

    def headed(minutes: float, key: bytes) -> Record:
        said = (BEGAN + timedelta(minutes=minutes)).isoformat().encode()
        return Record(b"", key, 0, None, [("at", b"never"), ("at", said)])

    def go() -> None:
        time = keyrange.EventTime(header="at", delay="10 minutes", late=late)
        given = own(tmp_path, includeHeaders="true", columns="key,value,headers")
        job.run(keyrange.windows.tumbling("30m").count(), time=time, **given)

    job.produce(headed(0, b"a"), headed(29, b"a"), headed(35, b"b"), Record(b"", b"c", 0))
    go()
    job.produce(headed(24, b"a"), headed(26, b"a"), headed(100, b"z"))
    go()
    assert sorted((row["key"], row["count"]) for row in job.rows()) == [(b"a", 3), (b"b", 1)]
    letters = DeltaTable(tmp_path / "commits_dead_letters").to_pyarrow_table().to_pylist()
    # Whoever said no time, and who was late.
    expected = [(3, "no_time")] + ([(4, "late")] if late == "deadLetter" else [])
    assert sorted((each["offset"], each["cause"]) for each in letters) == expected


def remember(record: Any, state: Any) -> None:
    state.n.update(state.n.get(default=0) + 1)
    state.timers.set(record.timestamp + HOUR)


def over(key: bytes, at: datetime, state: Any) -> Any:
    return key.decode(), state.n.get(), at


def at(minutes: float, key: bytes, partition: int = 0) -> Record:
    return Record(b"", key, partition, BEGAN_MS + round(minutes * 60_000))


def go(job: TableJob, on_timer: Any = over, time: Any = TIME, **given: str) -> Any:
    return job.start(
        remember if time else lambda record, state: state.n.update(0),
        SCHEMA,
        state=STATE,
        time=time,
        on_timer=on_timer,
        **own(job.home, **{**AT_ONCE, **given}),
    )


def found(job: TableJob) -> list[tuple[str, int, float]]:
    rows = ((row["key"], row["n"], (row["at"] - BEGAN) / HOUR) for row in job.rows())
    return sorted(rows)


@pytest.mark.parametrize("change", usually("another cut", "more partitions", "another checkpoint"))
def test_timers_stay_with_the_state_of_their_keys(job: TableJob, change: str) -> None:
    job.produce(at(0, b"a", 0), at(0, b"b", 1), at(30, b"a", 0))
    assert go(job, keyRangesPerPartition="2").awaitTermination(240)
    if change == "another checkpoint":
        job.checkpoint = job.home / "other"
    elif change == "more partitions":
        # Of a key whose records go elsewhere the timer is due where it was set.
        job.topics.add_partitions(job.topic, 3)
        job.produce(at(10, b"a", 2), at(200, b"z", 2))
    job.produce(at(200, b"z", 0), at(200, b"z", 1))
    again = {"commitTable.onFreshStart": "resume", "keyRangesPerPartition": "5"}
    assert go(job, **again).awaitTermination(240)
    more = [("a", 1, 1 + 10 / 60)] if change == "more partitions" else []
    assert found(job) == sorted([("a", 2, 1), ("a", 2, 1.5), ("b", 1, 1), *more])


def test_timers_of_which_nobody_is_told_any_more(job: TableJob) -> None:
    job.produce(at(0, b"a", 0))
    assert go(job).awaitTermination(240)
    job.produce(at(200, b"z", 0))
    # Without time the state would lack its timers.
    assert "[STATE_SCHEMA_CHANGED]" in failure_of(go(job, None, None))
    assert "on_timer" in failure_of(go(job, None))
    assert go(job).awaitTermination(240)
    assert found(job) == [("a", 1, 1)]


OTHERS = usually(keyrange.EventTime(header="at"), keyrange.ProcessingTime())


@pytest.mark.parametrize("other", OTHERS)
def test_another_time_is_refused_and_another_delay_goes_on(
    job: TableJob, tmp_path: Path, other: Any
) -> None:
    hours, given = keyrange.windows.tumbling("1h").count(), own(tmp_path, includeHeaders="true")
    job.produce(at(0, b"a"), at(1, b"a"))
    job.run(hours, time=TIME, **given)
    for more in ((), (at(100, b"z"),)):
        job.produce(*more)
        planned = {*(job.checkpoint / "offsets").iterdir()}
        text = failure_of(job.start(hours, time=other, **given))
        assert "[STATE_SCHEMA_CHANGED] variable 'timers' was made by EventTime(" in text
        assert f"and the job has {type(other).__name__}(" in text
        assert {*(job.checkpoint / "offsets").iterdir()} == planned
    # The watermark stands where it was, and then goes on.
    job.run(hours, time=keyrange.EventTime(delay="2h"), **given)
    assert not job.rows()
    job.produce(at(101, b"z"))
    job.run(hours, time=keyrange.EventTime(delay="30m"), **given)
    assert [row["count"] for row in job.rows()] == [2]
