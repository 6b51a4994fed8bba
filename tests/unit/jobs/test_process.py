"""Which functions the job for single records takes."""

from __future__ import annotations

from typing import Any

import pytest

import processing
from keyrange.errors import KeyrangeError
from spark.notebooks import load_job


@pytest.fixture(scope="module")
def job() -> Any:
    return load_job("process")


def test_a_function_is_found_by_its_module(job: Any) -> None:
    assert job.find_function("processing:work") is processing.work


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nowhere:work", "No module named 'nowhere'"),
        ("processing:nothing", "no attribute 'nothing'"),
        ("processing:worke", "(did you mean 'work'?)"),
        ("processing:SCHEMA", "cannot be called"),
        ("", "--function"),
    ],
)
def test_what_is_none_is_refused_in_a_line(job: Any, function: str, said: str) -> None:
    with pytest.raises(SystemExit) as raised:
        job.find_function(function)
    text = str(raised.value)
    assert text.startswith(f"--function {function}: ")
    assert said in text
    assert "\n" not in text


def arguments(job: Any, *more: str) -> Any:
    return job.parse_arguments(
        [
            *("--bootstrap-servers", "broker:9092", "--topic", "t", "--table", "/lake/t"),
            *("--checkpoint", "/lake/c", "--function", "processing:work", "--schema", "n int"),
            *more,
        ]
    )


def test_settings_of_a_table_that_keyrange_writes_are_refused_of_another(job: Any) -> None:
    given = arguments(job, "--commit-table", "/lake/commits", "--compression", "zstd")
    with pytest.raises(KeyrangeError, match="need --written-by keyrange"):
        job.start_with(processing.work, "n int", None, given, {})


def test_batches_are_committed_as_a_whole_only_where_keyrange_writes(job: Any) -> None:
    with pytest.raises(KeyrangeError, match="--written-by spark needs --commit-table"):
        job.start_with(processing.work, "n int", None, arguments(job), {})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--option", "maxOffsetPerTrigger=10"), "did you mean 'maxOffsetsPerTrigger'"),
        (("--function", "processing:nothing"), "--function processing:nothing: "),
    ],
)
def test_a_wrong_option_or_function_is_told_without_a_session(
    job: Any,
    more: tuple[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = arguments(job, "--written-by", "keyrange", *more)
    monkeypatch.setattr(job, "parse_arguments", lambda: given)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", None)
    monkeypatch.setattr("keyrange.observing.logs.configure", lambda _: None)
    try:
        assert job.main() == 1
        told = caplog.text
    except SystemExit as ended:
        told = str(ended.code)
    assert said in told
