"""Event time and timers: sessions of keys that end when nothing comes, through real batches."""

from __future__ import annotations

import sys
import time as clock
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document
from keyrange.errors import error
from keyrange.individual_commits.table.dead_letters import LAYOUT, DeadLetters
from keyrange.storage.delta_store import DeltaStore
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
GAP = timedelta(minutes=30)
SCHEMA = "key string, n long, until timestamp"
STATE = {"session": keyrange.ValueState("n long, last timestamp")}
TIME = keyrange.EventTime(delay="10 minutes")


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def own(home: Path, **given: str) -> dict[str, str]:
    return individual(home, splitBy="keyRange", **{"slot.directory": str(home / "slots")}, **given)


def session(record: Any, state: Any) -> Any:
    """A session goes on for as long as each record comes within 30 minutes of the one before."""
    n, last = state.session.get(default=(0, record.timestamp))
    over = None
    if record.timestamp >= last + GAP:
        # Event time has not come as far for the watermark as the record has.
        over, n = (record.key.decode(), n, last + GAP), 0
    last = max(last, record.timestamp)
    state.session.update((n + 1, last))
    state.timers.clear()
    state.timers.set(last + GAP)
    return over


def ended(key: bytes, at: datetime, state: Any) -> Any:
    n, _ = state.session.get()
    state.session.clear()
    return key.decode(), n, at


def at(minutes: float, key: bytes, value: bytes = b"", partition: int = 0) -> Record:
    return Record(value, key, partition, BEGAN_MS + round(minutes * 60_000))


def found(job: TableJob) -> list[tuple[str, int, float]]:
    """The sessions: key, records, and at which minute they ended."""
    return sorted(
        (row["key"], row["n"], (row["until"] - BEGAN) / timedelta(minutes=1)) for row in job.rows()
    )


def run(
    job: TableJob, home: Path, function: Any = session, timer: Any = ended, **given: Any
) -> None:
    job.run(function, SCHEMA, state=STATE, time=TIME, on_timer=timer, **own(home, **given))


def test_sessions_end_when_the_watermark_has_passed_them(job: TableJob, tmp_path: Path) -> None:
    job.produce(at(0, b"a"), at(1, b"b"), at(20, b"a"), at(2, b"c", partition=1))
    run(job, tmp_path, keyRangesPerPartition="3")
    assert found(job) == []
    # The watermark of partition 0 comes to minute 31: b is over, a is not, and c is elsewhere.
    job.produce(at(41, b"d"))
    run(job, tmp_path)
    assert found(job) == [("b", 1, 31)]
    job.produce(at(100, b"d"), at(101, b"c", partition=1))
    run(job, tmp_path, keyRangesPerPartition="2")
    expected = [("a", 2, 50), ("b", 1, 31), ("c", 1, 32), ("d", 1, 71)]
    assert found(job) == expected
    # What is late is left out: it would begin a session that is over.
    job.produce(at(30, b"e"), at(95, b"f"))
    run(job, tmp_path)
    job.produce(at(300, b"z"))
    run(job, tmp_path)
    assert found(job) == sorted([*expected, ("d", 1, 130), ("f", 1, 125)])
    shown = document("state", "show", str(tmp_path / "commits"))
    times = [(each["watermark"][11:16], each["late"]) for each in shown["partitions"]]
    assert times == [("16:50", 1), ("13:31", 0)]


def test_a_record_that_fails_holds_the_timers_of_its_key_and_no_others(
    job: TableJob, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def work(record: Any, state: Any) -> None:
        if record.value == b"!" and not gate.exists():
            raise ValueError("not yet")
        session(record, state)

    slow = {"redelivery.backoff": "1s", "redelivery.backoff.max": "1s", "maxDeliveries": "100"}
    job.produce(at(0, b"a"), at(0, b"b"), at(5, b"a", b"!"))
    run(job, tmp_path, work, **slow)
    job.produce(at(200, b"z"))
    run(job, tmp_path, work, **slow)
    assert found(job) == [("b", 1, 30)]
    assert document("state", "show", tmp_path / "commits")["partitions"][0]["pending"] == 1
    gate.touch()

    def is_done() -> bool:
        run(job, tmp_path, work, **slow)
        return len(found(job)) == 2

    # It was not late when it came first, and counts.
    wait_until(is_done)
    assert found(job) == [("a", 2, 35), ("b", 1, 30)]


def test_timers_that_wait_for_a_record_take_no_place_of_others(
    job: TableJob, tmp_path: Path
) -> None:
    """They are the oldest, and as many as a batch fires."""

    def work(record: Any, state: Any) -> None:
        if record.value == b"!":
            raise ValueError("not yet")
        session(record, state)

    slow = {"redelivery.backoff": "1h", "redelivery.backoff.max": "1h", "maxDeliveries": "100"}
    job.produce(*(at(n / 10, b"k%d" % n) for n in range(10)))
    job.produce(*(at(1 + n / 10, b"k%d" % n, b"!") for n in range(5)))
    run(job, tmp_path, work, keyRangesPerPartition="1", **slow)
    job.produce(at(200, b"z"))
    run(job, tmp_path, work, keyRangesPerPartition="1", maxOffsetsPerTrigger="5", **slow)
    assert [key for key, *_ in found(job)] == [f"k{n}" for n in range(5, 10)]


def test_a_timer_that_fails_comes_again_and_its_key_waits(job: TableJob, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def timer(key: bytes, when: datetime, state: Any) -> Any:
        if key == b"a" and not gate.exists():
            raise ValueError("not yet")
        return ended(key, when, state)

    slow = {"redelivery.backoff": "1s", "redelivery.backoff.max": "1s", "maxDeliveries": "100"}
    job.produce(at(0, b"a"), at(0, b"b"))
    run(job, tmp_path, timer=timer, **slow)
    job.produce(at(100, b"z"))
    run(job, tmp_path, timer=timer, **slow)
    assert found(job) == [("b", 1, 30)]
    job.produce(at(101, b"a"), at(101, b"b"))
    run(job, tmp_path, timer=timer, **slow)
    assert found(job) == [("b", 1, 30)]
    gate.touch()

    def is_done() -> bool:
        run(job, tmp_path, timer=timer, **slow)
        return len(found(job)) == 2

    wait_until(is_done)
    job.produce(at(300, b"z"))
    run(job, tmp_path, timer=timer, **slow)
    # The record of minute 101 did not join the session that was over.
    assert found(job) == [("a", 1, 30), ("a", 1, 131), ("b", 1, 30), ("b", 1, 131), ("z", 1, 130)]


def test_a_timer_that_is_given_up_is_a_dead_letter(
    job: TableJob, topics: Topics, tmp_path: Path
) -> None:
    """Once, although the driver dies between its letters and its commit."""
    died = tmp_path / "died"

    def timer(key: bytes, when: datetime, state: Any) -> Any:
        if key == b"a":
            raise ValueError("never")
        return ended(key, when, state)

    def run_it() -> None:
        letters = topics.create_topic("letters") if not died.exists() else died.read_text()
        died.write_text(letters)
        fast = {"redelivery.backoff": "1ms", "maxDeliveries": "2", "deadLetterTopic": letters}
        run(job, tmp_path, timer=timer, **fast)

    job.produce(at(0, b"a"), at(0, b"b"))
    run_it()
    job.produce(at(100, b"z"))

    def is_given_up() -> bool:
        run_it()
        return bool(rows())

    def rows() -> list[dict[str, Any]]:
        path = tmp_path / "commits_dead_letters"
        return DeltaTable(path).to_pyarrow_table().to_pylist() if path.exists() else []

    with pytest.MonkeyPatch.context() as patch:
        append = DeadLetters.append

        def dies(self: Any, *given: Any) -> None:
            append(self, *given)
            raise error("COMMITS_UNWRITABLE", "the driver dies here")

        patch.setattr(DeadLetters, "append", dies)
        with pytest.raises(Exception, match="the driver dies here"):
            wait_until(is_given_up)
    assert len(rows()) == 1
    wait_until(lambda: run_it() or len(found(job)) == 1)
    [row] = rows()
    assert (row["kind"], row["topic"], row["partition"], row["key"]) == (
        *("timer", job.topic, 0),
        b"a",
    )
    assert (row["offset"], row["timer_at"]) == (None, BEGAN + GAP)
    assert row["error"].startswith("ValueError: never (test_timers.py, line")
    assert (row["cause"], row["attempts"]) == ("rejected", 2)
    [listed] = DeadLetters(DeltaStore(str(tmp_path / "commits_dead_letters"), LAYOUT, {})).timers()
    assert listed.timer_at_us == (BEGAN_MS + 30 * 60_000) * 1000
    # Its key goes on.
    job.produce(at(101, b"a"), at(200, b"z"))
    wait_until(lambda: run_it() or len(rows()) == 2)
    assert {row["timer_at"] for row in rows()} == {BEGAN + GAP, BEGAN + timedelta(minutes=131)}


def test_a_timer_that_was_given_up_is_set_again(job: TableJob, tmp_path: Path) -> None:
    """It sees the state as it is by then, and fires once."""
    mended = tmp_path / "mended"

    def timer(key: bytes, when: datetime, state: Any) -> Any:
        if key == b"a" and not mended.exists():
            raise ValueError("not yet")
        return ended(key, when, state)

    def run_it() -> None:
        fast = {"redelivery.backoff": "1ms", "maxDeliveries": "1"}
        run(job, tmp_path, timer=timer, **fast)

    def replay() -> int:
        found = document("deadletters", "replay", tmp_path / "commits", "--all", "--confirm")
        return len(found["timers"])

    job.produce(at(0, b"a"), at(0, b"b"))
    run_it()
    job.produce(at(100, b"z"))
    wait_until(lambda: run_it() or (tmp_path / "commits_dead_letters").exists())
    assert replay() == 1
    # It fails again, and has another letter.
    wait_until(lambda: run_it() or replay() == 1)
    mended.touch()
    wait_until(lambda: run_it() or len(found(job)) == 2)
    assert found(job) == [("a", 1, 30), ("b", 1, 30)]
    assert replay() == 0
    job.produce(at(300, b"z"))
    run_it()
    assert found(job) == [("a", 1, 30), ("b", 1, 30), ("z", 1, 130)]


def test_other_windows_than_those_in_state_are_refused(job: TableJob, tmp_path: Path) -> None:
    hours, days = (keyrange.windows.tumbling(size).count() for size in ("1h", "1d"))
    job.produce(at(0, b"a"), at(1, b"b"))
    job.run(hours, time=TIME, **own(tmp_path))
    # Whether there is a new record or not.
    for more in ((), (at(100, b"z"),)):
        job.produce(*more)
        planned = {*(job.checkpoint / "offsets").iterdir()}
        text = failure_of(job.start(days, time=TIME, **own(tmp_path)))
        assert "[STATE_SCHEMA_CHANGED]" in text
        assert "windows of 3600 s, count = count(*)" in text
        assert "windows of 86400 s" in text
        assert {*(job.checkpoint / "offsets").iterdir()} == planned
    job.run(hours, time=TIME, **own(tmp_path))
    job.produce(at(101, b"z"))
    job.run(hours, time=TIME, **own(tmp_path))
    assert {row["key"]: row["count"] for row in job.rows()} == {b"a": 1, b"b": 1}


def test_an_idle_partition_goes_on_as_the_clock_does(job: TableJob, tmp_path: Path) -> None:
    time = keyrange.EventTime(delay="0s", idle_after="2s")
    job.produce(at(0, b"a"))

    def soon(record: Any, state: Any) -> None:
        state.session.update((1, record.timestamp))
        state.timers.set(record.timestamp + timedelta(seconds=1))

    query = job.start(
        soon,
        SCHEMA,
        state=STATE,
        time=time,
        on_timer=ended,
        trigger={"processingTime": "0 seconds"},
        **own(tmp_path),
    )
    try:
        wait_until(lambda: (tmp_path / "table" / "_delta_log").exists() and len(job.rows()) == 1)
    finally:
        query.stop()
    assert found(job) == [("a", 1, 1 / 60)]


def test_what_came_while_nobody_read_is_not_late(job: TableJob, tmp_path: Path) -> None:
    """The query was stopped for longer than `idle_after`, and reads one record a batch then."""
    time = keyrange.EventTime(delay="0s", idle_after="1s")

    given = own(tmp_path, maxOffsetsPerTrigger="1")

    def run_it() -> None:
        job.run(session, SCHEMA, state=STATE, time=time, on_timer=ended, **given)

    job.produce(at(0, b"a"))
    run_it()
    clock.sleep(3)
    job.produce(at(0.01, b"b"), at(0.02, b"b"))
    run_it()
    job.produce(at(100, b"z"), at(200, b"z"))
    run_it()
    assert {("a", 1, 30), ("b", 2, 30.02)} <= {*found(job)}


def test_processing_time_timers_fire_by_the_clock(job: TableJob, tmp_path: Path) -> None:
    def later(record: Any, state: Any) -> None:
        state.session.update((1, record.timestamp))
        state.timers.set(datetime.now(UTC) + timedelta(seconds=3))

    query = job.start(
        later,
        SCHEMA,
        state=STATE,
        time=keyrange.ProcessingTime(),
        on_timer=ended,
        trigger={"processingTime": "0 seconds"},
        **own(tmp_path),
    )
    try:
        job.produce(at(0, b"a"))
        wait_until(lambda: (tmp_path / "table" / "_delta_log").exists() and len(job.rows()) == 1)
    finally:
        query.stop()


def test_many_keys_at_once(job: TableJob, tmp_path: Path) -> None:
    def sessions(records: pa.RecordBatch, groups: Any, state: pa.RecordBatch) -> Any:
        kept, numbers = state.column("session"), groups.to_numpy()
        times = records.column("timestamp").cast(pa.int64()).to_numpy()
        n = pc.fill_null(pc.struct_field(kept, "n"), 0).to_numpy(zero_copy_only=False)
        last = pc.fill_null(pc.struct_field(kept, "last").cast(pa.int64()), 0)
        last = last.to_numpy(zero_copy_only=False).copy()
        np.maximum.at(last, numbers, times)
        n = n + np.bincount(numbers, minlength=len(n))
        stamps = pa.array(last).cast(pa.timestamp("us", "UTC"))
        new = pa.StructArray.from_arrays([pa.array(n), stamps], ["n", "last"])
        until = pc.add(stamps, pa.scalar(GAP))
        timers = pa.ListArray.from_arrays(pa.array(range(len(until) + 1), pa.int32()), until)
        return None, pa.RecordBatch.from_arrays([new, timers], ["session", "timers"])

    def over(timers: pa.RecordBatch, groups: Any, state: pa.RecordBatch) -> Any:
        n = pc.struct_field(state.column("session"), "n").take(groups)
        key = timers.column("key").cast(pa.string())
        output = pa.RecordBatch.from_arrays([key, n, timers.column("at")], ["key", "n", "until"])
        cleared = pa.array([True] * state.num_rows)
        return output, state, cleared

    given = {"mode": "arrow", "state": STATE, "time": TIME, "on_timer": over, **own(tmp_path)}
    job.produce(*(at(n % 25, b"k%d" % (n % 10)) for n in range(100)))
    job.run(sessions, SCHEMA, **given)
    job.produce(at(200, b"z"))
    job.run(sessions, SCHEMA, **given)
    last = {key: max(n % 25 for n in range(100) if n % 10 == key) for key in range(10)}
    assert found(job) == sorted((f"k{key}", 10, 30 + last[key]) for key in range(10))


def test_many_timers_are_spread_over_batches_the_oldest_first(
    job: TableJob, tmp_path: Path
) -> None:
    job.produce(*(at(n / 10, b"k%d" % n) for n in range(60)))
    run(job, tmp_path)
    job.produce(at(200, b"z"))
    run(job, tmp_path, maxOffsetsPerTrigger="20")
    assert [(n, until) for _, n, until in sorted(found(job), key=lambda row: row[2])] == [
        (1, pytest.approx(30 + n / 10)) for n in range(60)
    ]
    files = pa.table(DeltaTable(tmp_path / "table").get_add_actions(flatten=True))
    assert max(files.column("num_records").to_pylist()) <= 20
