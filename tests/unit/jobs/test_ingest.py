"""Who writes the table of the job that streams topics into one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import keyrange
from keyrange.errors import KeyrangeError, error
from keyrange.jobs.last_batch import is_of_a_job
from notebooks import load_job

SERVERS = "broker:9092"
SOURCE = "0" * 32
OFFSETS = {
    "jvm": {"t": {"0": 1}},
    "sink": {"@keyrange": {"version": 1}, "t": {"0": 1}},
    "job": {"@keyrange": {"version": 2, "sourceId": SOURCE}, "t": {"0": 1}},
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
    assert is_of_a_job(str(tmp_path)) is found


def test_a_query_that_has_planned_nothing_is_nobodys(tmp_path: Path) -> None:
    assert is_of_a_job(str(tmp_path / "none")) is None
    (tmp_path / "offsets").mkdir()
    assert is_of_a_job(str(tmp_path)) is None


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "offsets" / "0").mkdir(parents=True)
    (tmp_path / "offsets" / "0" / "x").touch()
    for location in (str(tmp_path), "wasb://lake/checkpoint"):
        with pytest.raises(KeyrangeError) as raised:
            is_of_a_job(location)
        assert raised.value.condition.name == "INVALID_CHECKPOINT_PATH"


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

    def trigger(self, **_: str) -> Any:
        return SimpleNamespace(start=lambda: "a job")


Start = Callable[..., str]


@pytest.fixture
def start(job: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Start a query with some arguments, and say who writes its table."""
    monkeypatch.setattr(job, "start_sink", lambda *_: "Spark")

    def started(*more: str, table: str = "/lake/t", written: Any = None) -> str:
        monkeypatch.setattr(keyrange, "job", written or Written())
        arguments = job.parse_arguments(
            [
                *("--bootstrap-servers", SERVERS, "--topic", "t", "--table", table),
                *("--checkpoint", str(tmp_path / "checkpoint"), *more),
            ]
        )
        found: str = job.start(None, arguments, job.source_options(arguments))
        return found

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
