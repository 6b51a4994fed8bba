"""Who writes the table of the job that streams topics into one."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.store import MemoryStore
from py4j.protocol import Py4JJavaError, Py4JNetworkError

import keyrange
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.jobs.run_summary import is_of_a_job, pending_records
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.storage import directory
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import StoreFailed
from spark.notebooks import load_job
from tables.commit_tables import MemoryCommitTable
from tables.committing import commit_states

SERVERS = "broker:9092"
SOURCE = "0" * 32
OFFSETS = {
    "jvm": {"t": {"0": 1}},
    "sink": {"@keyrange": {"version": 1}, "t": {"0": 1}},
    "job": {"@keyrange": {"version": 1, "sourceId": SOURCE}, "t": {"0": 1}},
    "individual": {
        "@keyrange": {"version": 1, "commits": {"seq": 3, "sourceId": SOURCE}},
        "t": {"0": 1},
    },
}


@pytest.fixture(scope="module")
def job() -> Any:
    return load_job("ingest")


def plan(checkpoint: Path, batch: int, by: str) -> None:
    path = checkpoint / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(OFFSETS[by])}')


@pytest.mark.parametrize(
    ("by", "found"), [("jvm", False), ("sink", False), ("job", True), ("individual", True)]
)
def test_the_last_batch_says_whose_a_query_is(tmp_path: Path, by: str, found: bool) -> None:
    other = "sink" if found else "job"
    plan(tmp_path, 8, other)
    plan(tmp_path, 10, by)
    plan(tmp_path, 9, other)
    assert is_of_a_job(str(tmp_path), {}) is found


def test_a_query_that_has_planned_nothing_is_nobodys(tmp_path: Path) -> None:
    assert is_of_a_job(str(tmp_path / "none"), {}) is None
    (tmp_path / "offsets").mkdir()
    assert is_of_a_job(str(tmp_path), {}) is None


def test_a_checkpoint_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()

    def refuse(*_: Any) -> bytes:
        raise StoreFailed("403 Forbidden")

    monkeypatch.setattr(Directory, "read", refuse)
    for location, name in (
        (str(tmp_path), "CHECKPOINT_UNREADABLE"),
        ("wasb://lake/checkpoint", "INVALID_CHECKPOINT_PATH"),
    ):
        with pytest.raises(KeyrangeError) as raised:
            is_of_a_job(location, {})
        assert raised.value.condition.name == name


class Written:
    """Tables that keyrange can write, or cannot; `into` is what it was asked for."""

    def __init__(self, failure: KeyrangeError | None = None) -> None:
        self.failure = failure
        self.into_given: dict[str, Any] = {}

    def __call__(self, options: dict[str, str]) -> Any:
        return self

    def into(self, table: str, checkpoint: str, **settings: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        self.into_given = {"table": table, "checkpoint": checkpoint, **settings}
        return self

    written_by = "the tasks that read"

    def trigger(self, **_: str) -> Any:
        return SimpleNamespace(start=lambda: "a job", written_by=self.written_by)


Start = Callable[..., str]


@pytest.fixture
def start(job: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Start a query with some arguments, and say who writes its table."""
    monkeypatch.setattr(job, "start_sink", lambda *_: "Spark")
    monkeypatch.setattr(job, "check_delta", lambda: None)

    def started(*more: str, table: str = "/lake/t", written: Any = None) -> str:
        monkeypatch.setattr(keyrange, "job", written or Written())
        arguments = job.parse_arguments(
            [
                *("--bootstrap-servers", SERVERS, "--topic", "t", "--table", table),
                *("--checkpoint", str(tmp_path / "checkpoint"), *more),
            ]
        )
        found, _ = job.start(None, arguments, job.source_options(arguments))
        return str(found)

    return started


def test_the_tasks_that_read_write_the_table(start: Start, tmp_path: Path) -> None:
    written = Written()
    flags = ("--partition-by", "topic", "--partition-by", "date(timestamp)")
    assert start(*flags, "--compression", "zstd", written=written) == "a job"
    assert written.into_given == {
        "table": "/lake/t",
        "checkpoint": str(tmp_path / "checkpoint"),
        "partition_by": ["topic", "date(timestamp)"],
        "compression": "zstd",
        "spark": None,
    }


@pytest.mark.parametrize(
    ("more", "table", "why"),
    [
        (("--text",), "/lake/t", "--text changes the types of columns"),
        (("--written-by", "spark"), "/lake/t", "--written-by=spark"),
        ((), "lake.orders", "lake.orders is neither an absolute path nor a URI"),
        ((), "lake/orders", "lake/orders is neither an absolute path nor a URI"),
        (
            ("--option", "mapInArrow=jobs:f", "--option", "mapInArrowSchema=a int"),
            "s3a://lake/t",
            "option mapInArrow makes the rows",
        ),
    ],
)
def test_one_line_says_why_spark_writes_it(
    start: Start, caplog: pytest.LogCaptureFixture, more: tuple[str, ...], table: str, why: str
) -> None:
    with caplog.at_level(logging.INFO, "ingest"):
        assert start(*more, table=table) == "Spark"
    said = f"Spark writes the table, and not the tasks that read: {why}"
    assert [each.getMessage() for each in caplog.records] == [said]


UNSUITABLE = error("SINK_UNSUITABLE", "the table does not take files: it has a rule")


def test_a_table_that_takes_no_files_is_written_by_spark(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ingest"):
        assert start(written=Written(UNSUITABLE)) == "Spark"
    assert caplog.records[0].getMessage().endswith("the table does not take files: it has a rule")


def test_a_checkpoint_is_reached_by_the_settings_of_the_store(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, store = [], MemoryStore()
    monkeypatch.setattr(directory, "open_store", lambda *given: opened.append(given) or store)
    given = ("--checkpoint", "s3a://lake/c", "--option", "objectStore.aws_region=x")
    assert start(*given) == "a job"
    assert opened == [("s3://lake/c", {"aws_region": "x"})]


def test_a_checkpoint_that_only_spark_can_read_is_left_to_it(start: Start) -> None:
    assert start("--checkpoint", "wasb://lake/checkpoint") == "Spark"


def test_a_query_goes_on_the_way_that_it_began(start: Start, tmp_path: Path) -> None:
    plan(tmp_path / "checkpoint", 0, "sink")
    assert start() == "Spark"
    plan(tmp_path / "checkpoint", 1, "job")
    assert start() == "a job"
    with pytest.raises(KeyrangeError, match="SINK_UNSUITABLE"):
        start(written=Written(UNSUITABLE))


def test_what_is_wrong_otherwise_is_no_reason_for_spark(start: Start) -> None:
    with pytest.raises(KeyrangeError, match="INVALID_OPTIONS"):
        start(written=Written(error("INVALID_OPTIONS", "no")))
    with pytest.raises(KeyrangeError, match="subscibe"):
        start("--option", "subscibe=t")


@pytest.mark.parametrize(
    "flag", [("--partition-by", "topic"), ("--compression", "zstd"), ("--optimize-every", "9")]
)
def test_settings_of_a_table_are_not_passed_over(start: Start, flag: tuple[str, str]) -> None:
    with pytest.raises(KeyrangeError, match=f"{flag[0]}.* are not for Spark.*--text"):
        start("--text", *flag)


class Session:
    """A session that does nothing, and the builder that makes it."""

    streams = dataSource = SimpleNamespace(addListener=print, register=print)

    def config(self, *_: str) -> Session:
        return self

    appName = config

    def getOrCreate(self) -> Session:
        return self

    def stop(self) -> None:
        """It ends."""


@pytest.fixture
def ended(job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Run a job to its end, which leaves so many records waiting; the exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # As under spark-submit: whether there is a Java is asked of one that is started for it.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(job, "SparkSession", SimpleNamespace(builder=Session()))
    monkeypatch.setattr(job, "register", lambda _: None)
    monkeypatch.setattr(job.logs, "configure", lambda _: None)

    def run(waiting: int | None, *more: str, results: Sequence[BatchResult] = ()) -> int:
        def follow(_: Any, follower: Any, stopping: list[int]) -> None:
            for each in results:
                follower._count(SimpleNamespace(records=100, result=each))
            if "stopped" in more:
                stopping.append(signal.SIGTERM)

        monkeypatch.setattr(job, "follow", follow)
        monkeypatch.setattr(job, "pending_records", lambda *_: waiting)
        flags = [each for each in more if each != "stopped"]
        required = ("--bootstrap-servers", SERVERS, "--topic", "t", "--table", "/lake/t")
        arguments = job.parse_arguments([*required, "--checkpoint", "/lake/c", *flags])
        code: int = job.run_query("ingest t", arguments, lambda *_: (None, "the tasks"))
        return code

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_without_java_a_job_says_what_to_install(
    ended: Callable[..., int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    assert ended(0, "--available-now") == 1
    [said] = caplog.messages
    assert said.startswith("[JAVA_NOT_FOUND] java does not run (path=/none/bin/java")
    assert said.endswith("set JAVA_HOME.")
    # spark-submit has started a Java already.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert ended(0, "--available-now") == 0


class JavaError(Py4JJavaError):
    """Its text comes from the JVM, whose answer this is."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer

    def __str__(self) -> str:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (
            JavaError(
                "An error occurred while calling o99.start.\n: "
                "java.lang.NoSuchMethodError: scala.collection.immutable.Seq\n\tat io.delta.X"
            ),
            1,
            "NoSuchMethodError: scala.collection.immutable.Seq",
        ),
        (JavaError(Py4JNetworkError("no answer")), 143, "stopped with the driver's JVM"),
        (Py4JNetworkError("no answer"), 143, "stopped with the driver's JVM"),
        (ConnectionRefusedError(), 143, "stopped with the driver's JVM"),
    ],
)
def test_an_error_of_java_is_no_jvm_that_was_stopped(
    ended: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    job: Any,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    code: int,
    line: str,
) -> None:
    def fail(_: Any) -> None:
        raise failure

    monkeypatch.setattr(job, "register", fail)
    with caplog.at_level(logging.INFO):
        assert ended(0, "--available-now") == code
    assert line in caplog.messages[-1]


@pytest.mark.parametrize(
    ("waiting", "more", "code"),
    [
        (None, ["--available-now"], 0),
        (0, ["--available-now"], 0),
        (15, ["--available-now"], 3),
        (15, ["--available-now", "stopped"], 0),
        (15, ["stopped"], 0),
        (15, [], 0),
    ],
)
def test_a_run_that_leaves_records_neither_done_nor_dead_does_not_end_well(
    ended: Callable[..., int], waiting: int | None, more: list[str], code: int
) -> None:
    assert ended(waiting, *more) == code


def test_a_run_that_gives_up_all_that_it_works_on_does_not_end_well(
    ended: Callable[..., int],
) -> None:
    dead, done = BatchResult(0, 7, 0, 7, 0), BatchResult(1, 0, 0, 0, 0)
    for pending in (None, 0):
        assert ended(pending, "--available-now", results=[dead, dead]) == 3
        assert ended(pending, "--available-now", results=[dead, done]) == 0
        assert ended(pending, results=[dead]) == 0


def test_the_last_line_says_what_became_of_records(
    ended: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ingest")
    results = [BatchResult(985, 1, 14, 0, 15), BatchResult(14, 1, 0, 1, 0)]
    ended(0, results=results)
    ended(15, results=results[:1])
    ended(None)
    ended(None, results=[BatchResult(3, 1, 0, 1, 0)])
    said = [(each.levelname, each.getMessage().rpartition(",")[0]) for each in caplog.records]
    by = ", written by the tasks"
    assert said == [
        ("WARNING", f"ended: 200 records in 2 batches, 999 done, 0 pending, 1 dead{by}"),
        ("WARNING", f"ended: 100 records in 1 batch, 985 done, 15 pending, 0 dead{by}"),
        ("INFO", f"ended: 0 records in 0 batches{by}"),
        ("WARNING", f"ended: 100 records in 1 batch, 3 done, 0 pending, 1 dead{by}"),
    ]


def test_records_wait_that_the_last_commit_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MemoryCommitTable(SOURCE)
    place = TopicPartition("t", 0)
    pending = (PendingRecord(3, 5), PendingRecord(4, 5))
    state = PartitionState("", 9, (KeyRangeState(SPACE, 9, pending),))
    commit_states(table.store, SOURCE, {place: state})
    given = {"kafka.bootstrap.servers": SERVERS, "subscribe": "t"}
    individual = {**given, "commitMode": "individual", "commitTable": "/lake/commits"}

    def found(options: dict[str, str]) -> int | None:
        parsed = parse_options(options, "stream").commits
        return pending_records(parsed, str(tmp_path), lambda *_: table)

    assert found(individual) is None, "it has planned nothing"
    plan(tmp_path, 0, "individual")
    (tmp_path / "metadata").write_text('{"id": "q"}')
    assert found(individual) == 2
    assert found(given) is None
