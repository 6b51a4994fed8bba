"""What the enrichment job takes on its command line, and how it asks."""

from __future__ import annotations

from typing import Any

import pytest

from notebooks import load_job

USUAL = [
    *("--bootstrap-servers", "b:9092", "--topic", "t", "--table", "/t", "--checkpoint", "/c"),
    *("--commit-table", "/m"),
]


@pytest.fixture(scope="module")
def job() -> Any:
    return load_job("keyed_enrichment")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--service", "prices.example/quote"], "not an http or https URL"),
        (["--service", "ftp://prices.example"], "not an http or https URL"),
        (["--service", "http:///quote"], "not an http or https URL"),
        (["--service", "http://prices.example", "--tries", "0"], "more than 0"),
        (["--service", "http://prices.example", "--authorization", "Bearer 1234"], "env:NAME"),
        (["--service", "http://prices.example", "--authorization", "env:"], "env:NAME"),
    ],
)
def test_what_cannot_work_is_refused(
    job: Any, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        job.parse_arguments([*USUAL, *more])
    assert ending.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "1234" not in error


@pytest.mark.parametrize(("text", "found"), [("3", 3.0), ("", 0.0), ("Wed, 21 Oct 2026", 0.0)])
def test_how_long_a_busy_service_wants_to_be_left_alone(job: Any, text: str, found: float) -> None:
    assert job.seconds(text) == found
