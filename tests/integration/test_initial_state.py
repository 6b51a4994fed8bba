"""State that a query begins with: rows of a DataFrame, a Delta table, or a file, seen by the first
record of each key, once, whatever ends between the steps."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from commands.commanding import document, refusal, succeed
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.initial_state import InitialState
from keyrange.kafka.messages.produce import partition_of
from project.forms import usually
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TOTAL = {"total": keyrange.ValueState("n long")}
SCHEMA = "key string, n long, at long"
BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path, partitions=3)


def count(record: Any, state: Any) -> Any:
    total = state.total.get(default=0) + 1
    state.total.update(total)
    return record.key.decode(), total, record.offset


def count_all(records: Any, groups: Any, state: Any) -> Any:
    before = pc.fill_null(pc.struct_field(state.column("total"), "n"), 0).to_pylist()
    totals = []
    for group in groups.to_pylist():
        before[group] += 1
        totals.append(before[group])
    output = {"key": records.column("key").cast(pa.string()), "n": pa.array(totals, pa.int64())}
    output["at"] = records.column("offset")
    new = pa.StructArray.from_arrays([pa.array(before, pa.int64())], ["n"])
    return pa.RecordBatch.from_pydict(output), pa.RecordBatch.from_arrays([new], ["total"])


def own(home: Path, **given: str) -> dict[str, str]:
    ranges = {"splitBy": "keyRange", "keyRangesPerPartition": "2"}
    return individual(home, **{"slot.directory": str(home / "slots")}, **ranges, **given)


def produce(job: TableJob, *keys: bytes) -> None:
    job.produce(*(Record(b"", key, partition_of(key, 3)) for key in keys))


KEYS = [b"k%d" % n for n in range(60)]


@pytest.mark.parametrize("mode", usually("record", "arrow"))
def test_the_first_record_of_a_key_sees_what_was_imported(
    job: TableJob, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    frame = spark.createDataFrame([(f"k{n}", n * 100) for n in range(40)], "key string, total int")
    function = count if mode == "record" else count_all
    for _ in range(2):
        produce(job, *KEYS)
        # Started again it has its state, whatever this says.
        job.run(function, SCHEMA, mode, state=TOTAL, initial_state=frame, **own(tmp_path))
    found = {(row["key"], row["n"]) for row in job.rows()}
    begins = {f"k{n}": n * 100 if n < 40 else 0 for n in range(60)}
    assert found == {(key, n + more) for key, n in begins.items() for more in (1, 2)}


def test_imported_timers_fire_by_the_clock_without_any_record(
    job: TableJob, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was due when the query begins, and one that becomes due."""
    now = datetime.now(UTC)
    times = {"past": now - timedelta(days=1), "soon": now + timedelta(seconds=8)}
    rows = [(key, 7, [at]) for key, at in times.items()]
    columns = "key string, total long, timers array<timestamp>"

    def fires(key: bytes, when: datetime, state: Any) -> Any:
        return key.decode(), state.total.get(), int(when.timestamp() * 1e6)

    query = job.start(
        count,
        SCHEMA,
        state=TOTAL,
        initial_state=spark.createDataFrame(rows, columns),
        time=keyrange.ProcessingTime(),
        on_timer=fires,
        trigger={"processingTime": "0 seconds"},
        **own(tmp_path),
    )
    try:
        wait_until(lambda: (tmp_path / "table" / "_delta_log").exists() and len(job.rows()) == 2)
    finally:
        query.stop()
    found = {row["key"]: (row["n"], row["at"]) for row in job.rows()}
    assert found == {key: (7, int(at.timestamp() * 1e6)) for key, at in times.items()}
    # No other query has written anything that the table lacks.
    assert "goes on from commits" not in caplog.text


@pytest.mark.parametrize("mode", usually("arrow", "record"))
def test_imported_state_and_timers_survive_another_cut(
    job: TableJob, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    due = BEGAN + timedelta(hours=1)
    rows = [(key.decode(), 100, [due]) for key in KEYS]
    frame = spark.createDataFrame(rows, "key string, total long, timers array<timestamp>")

    def fires(key: bytes, when: datetime, state: Any) -> Any:
        assert when == due
        return key.decode(), -state.total.get(), 0

    def fires_all(timers: Any, groups: Any, state: Any) -> Any:
        totals = pc.struct_field(state.column("total"), "n").take(groups)
        output = {"key": timers.column("key").cast(pa.string()), "n": pc.negate(totals)}
        output["at"] = pa.array([0] * len(totals), pa.int64())
        return pa.RecordBatch.from_pydict(output), state

    function, on_timer = (count, fires) if mode == "record" else (count_all, fires_all)
    for ranges, minutes in ((2, 0), (5, 61), (1, 62), (3, 63)):
        at_ms = BEGAN_MS + minutes * 60_000
        job.produce(*(Record(b"", key, partition_of(key, 3), at_ms) for key in KEYS))
        job.run(
            *(function, SCHEMA, mode),
            state=TOTAL,
            initial_state=frame,
            time=keyrange.EventTime(),
            on_timer=on_timer,
            **{**own(tmp_path), "keyRangesPerPartition": str(ranges)},
        )
    found = Counter((row["key"], row["n"]) for row in job.rows())
    # Timers fire before the records of the batch behind the one that moved the watermark.
    wanted = [100 + more for more in (1, 2, 3, 4)] + [-102]
    assert found == Counter((key.decode(), n) for key in KEYS for n in wanted)


def test_a_query_that_has_begun_takes_no_other_beginning(
    job: TableJob, spark: SparkSession, tmp_path: Path
) -> None:
    produce(job, *KEYS[:3])
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    frame = spark.createDataFrame([("k0", 7)], "key string, total long")
    with pytest.raises(KeyrangeError, match="INITIAL_STATE_TOO_LATE"):
        job.start(count, SCHEMA, state=TOTAL, initial_state=frame, **own(tmp_path))


def imported(job: TableJob, home: Path, *more: object, group: str = "default") -> list[object]:
    where = ("--topic", job.topic, "--bootstrap-servers", job.topics.cluster.bootstrap_servers)
    return ["state", "import", home / "commits", "--group", group, *where, *more, "--confirm"]


def test_a_command_imports_files_and_tables(job: TableJob, tmp_path: Path) -> None:
    produce(job, *KEYS)
    rows = pa.table({"key": [f"k{n}" for n in range(40)], "total": range(40)})
    write_deltalake(tmp_path / "given", rows)
    variable = ("--variable", "total: value of n long")
    *trial, _ = imported(job, tmp_path, "--from", tmp_path / "given", *variable)
    would = document(*trial)
    assert not (tmp_path / "commits").exists()
    assert not (tmp_path / "commits_state").exists()
    told = document(*imported(job, tmp_path, "--from", tmp_path / "given", *variable))
    assert would == {**told, "written": None}
    assert (told["keys"], told["without_value"], told["topics"][0]["partitions"]) == (40, 0, 3)
    shown = document("state", "show", tmp_path / "commits")
    assert {each["partition"]: each["keys"] for each in shown["partitions"]} == {
        each["partition"]: each["keys"] for each in told["partitions"]
    }
    again = refusal(*imported(job, tmp_path, "--from", tmp_path / "given", *variable))
    assert "INITIAL_STATE_TOO_LATE" in again
    assert "has imported state already" in again
    assert document("commits", "history", tmp_path / "commits")[0]["kind"] == "import"
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    found = {row["key"]: row["n"] for row in job.rows()}
    assert found == {f"k{n}": (n if n < 40 else 0) + 1 for n in range(60)}
    assert "TOO_LATE" in refusal(*imported(job, tmp_path, "--from", tmp_path / "given", *variable))
    succeed("state", "verify", tmp_path / "commits")
    succeed("commits", "verify", tmp_path / "commits")


def keep(record: Any, state: Any) -> None:
    state.last.update((record.offset, record.timestamp))
    state.soon.update(record.offset)
    state.seen.update(record.key.decode(), record.offset)
    state.timers.set(record.timestamp + timedelta(minutes=5))


def fired(key: bytes, at: datetime, state: Any) -> Any:
    return key.decode(), state.last.get()[0], at


def test_what_was_exported_is_imported(
    job: TableJob, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    state = {
        "last": keyrange.ValueState("n long, at timestamp"),
        "soon": keyrange.ValueState("n long", ttl="1d"),
        "seen": keyrange.MapState("id string", "n long"),
    }
    given = {"state": state, "time": keyrange.EventTime(), "on_timer": fired}
    schema = "key string, n long, at timestamp"
    job.produce(*(Record(b"", key, partition_of(key, 3), BEGAN_MS) for key in KEYS))
    job.run(keep, schema, **given, **own(tmp_path))
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    succeed("state", "export", tmp_path / "commits", "--to", first)
    one = pq.read_table(first).drop_columns(["topic"])
    pq.write_table(one, first)
    other = TableJob(spark, topics, tmp_path / "other", partitions=3)
    command = imported(other, tmp_path / "other", "--from", first, group="g")
    succeed(*command)
    succeed("state", "export", tmp_path / "other" / "commits", "--to", second)
    assert one.num_rows == 60
    again = pq.read_table(second).drop_columns(["topic"])
    assert one.schema.equals(again.schema, check_metadata=True)
    assert one.equals(again)
    # The timers are there too, and wait for event time.
    other.produce(*(Record(b"", b"new", number, BEGAN_MS + 600_000) for number in range(3)))
    for _ in range(2):
        other.run(keep, schema, **given, **own(tmp_path / "other", commitGroup="g"))
    assert {row["key"] for row in other.rows()} == {key.decode() for key in KEYS}


KILLED = """
import os, signal, sys
from keyrange.cli.main import app
from keyrange.individual_commits.table.initial_state import InitialState

commit = InitialState.commit

def killed(self, *given):
    if sys.argv[1] == "after":
        commit(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)

InitialState.commit = killed
app(sys.argv[2:])
"""


@pytest.mark.parametrize("point", usually("before", "after"))
def test_an_import_that_was_killed_is_done_once(job: TableJob, tmp_path: Path, point: str) -> None:
    rows = pa.table({"key": [f"k{n}" for n in range(60)], "total": range(60)})
    pq.write_table(rows, tmp_path / "given.parquet")
    variable = ("--variable", "total: value of n long")
    command = imported(job, tmp_path, "--from", tmp_path / "given.parquet", *variable)
    given = [str(each) for each in command]
    killed = subprocess.run([sys.executable, "-c", KILLED, point, *given], timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    if point == "before":
        assert document(*command)["keys"] == 60
    else:
        assert "has imported state already" in refusal(*command)
    [source] = (tmp_path / "commits_state").iterdir()
    # What the import left that was killed is gone.
    assert len(list(source.iterdir())) == 1
    produce(job, *KEYS)
    job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    assert {row["key"]: row["n"] for row in job.rows()} == {f"k{n}": n + 1 for n in range(60)}


def test_a_job_whose_driver_ended_before_the_commit_imports_again(
    job: TableJob, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(job, *KEYS)
    frame = spark.createDataFrame([(f"k{n}", n) for n in range(60)], "key string, total long")
    with monkeypatch.context() as patched:
        patched.setattr(InitialState, "commit", ended)
        with pytest.raises(ZeroDivisionError):
            job.start(count, SCHEMA, state=TOTAL, initial_state=frame, **own(tmp_path))
    job.run(count, SCHEMA, state=TOTAL, initial_state=frame, **own(tmp_path))
    assert {row["key"]: row["n"] for row in job.rows()} == {f"k{n}": n + 1 for n in range(60)}


def ended(*_given: Any) -> None:
    raise ZeroDivisionError


def test_what_only_tasks_see_is_told_by_its_own_error(
    job: TableJob, spark: SparkSession, tmp_path: Path
) -> None:
    for rows, said in (
        ([("a", 1), ("b", 2), ("a", 3)], "is there twice"),
        ([("a", 1), (None, 2)], "column 'key' is null"),
        ([("a", 1 << 40)], "column 'total': a value of struct<n: int64>"),
        ([], "no rows"),
    ):
        frame = spark.createDataFrame(rows, "key string, total long")
        state = {"total": keyrange.ValueState("n int")}
        with pytest.raises(KeyrangeError, match="INITIAL_STATE_UNFIT") as refused:
            job.start(count, SCHEMA, state=state, initial_state=frame, **own(tmp_path))
        assert said in refused.value.message


def test_windows_that_begin_where_none_does_are_refused(
    job: TableJob, spark: SparkSession, tmp_path: Path
) -> None:
    """As those of Spark with a start time: records would go into the one before."""
    job.produce(*(Record(b"", b"a", at) for at in range(3)))
    for begin, is_one in (("12:15", False), ("12:20", True)):
        columns = (
            f"'a' AS key, TIMESTAMP '2024-05-01 {begin}:00Z' AS window_start, "
            "window_start + INTERVAL 1 HOUR AS window_end, 7L AS count"
        )
        given = {"time": keyrange.EventTime(), "initial_state": spark.sql(f"SELECT {columns}")}
        windows = keyrange.windows.hopping("1h", "20m").count()
        if not is_one:
            with pytest.raises(KeyrangeError, match="begins at a time at which none does"):
                job.start(windows, **given, **own(tmp_path))
            continue
        for _ in range(2):
            job.run(windows, **given, **own(tmp_path))
        assert [(row["key"], row["count"]) for row in job.rows()] == [(b"a", 7)]


def test_ids_without_a_time_are_refused(job: TableJob, spark: SparkSession, tmp_path: Path) -> None:
    """Each record of their key would fail."""
    frame = spark.sql("SELECT 'a' AS key, CAST(NULL AS TIMESTAMP) AS event_time")
    given = {"time": keyrange.EventTime(), "initial_state": frame}
    with pytest.raises(KeyrangeError, match="column 'event_time' is null"):
        job.start(keyrange.deduplicate(), **given, **own(tmp_path))


def test_state_of_another_topic_or_of_fewer_partitions_is_refused(
    job: TableJob, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    rows = pa.table({"key": ["a", "b", "c", "d"], "total": [1, 2, 3, 4]})
    pq.write_table(rows, tmp_path / "given.parquet")
    variable = ("--variable", "total: value of n long")
    succeed(*imported(job, tmp_path, "--from", tmp_path / "given.parquet", *variable))
    topics.add_partitions(job.topic, 4)
    with pytest.raises(KeyrangeError, match="had no such partition"):
        job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    topics.delete_topic(job.topic)
    topics.create_named(job.topic, 3)
    with pytest.raises(KeyrangeError, match="was made again since"):
        job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))
    job.topic = topics.create_topic("another", 3)
    with pytest.raises(KeyrangeError, match="does not read it"):
        job.run(count, SCHEMA, state=TOTAL, **own(tmp_path))


def test_windows_without_a_zone_are_written_at_their_end(
    job: TableJob, spark: SparkSession, tmp_path: Path
) -> None:
    """As those of a query of Spark's whose times have none: they count as UTC, whatever the zone
    of the session is. Timers for other times than their ends would let them wait for ever."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    columns = (
        "'a' AS key, TIMESTAMP_NTZ '2024-05-01 12:00' AS window_start, "
        "TIMESTAMP_NTZ '2024-05-01 13:00' AS window_end, 7L AS count"
    )
    given = {"time": keyrange.EventTime(), "initial_state": spark.sql(f"SELECT {columns}")}
    windows = keyrange.windows.tumbling("1h").count()
    at_ms = BEGAN_MS + 3_600_000
    job.produce(*(Record(b"", b"b", number, at_ms) for number in range(3)))
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        for _ in range(2):
            job.run(windows, **given, **own(tmp_path))
            job.produce(*(Record(b"", b"b", number, at_ms + 1) for number in range(3)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert [(row["key"], row["window_start"], row["count"]) for row in job.rows()] == [
        (b"a", BEGAN, 7)
    ]
