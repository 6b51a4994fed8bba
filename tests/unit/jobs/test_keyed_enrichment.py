"""What the enrichment job takes on its command line, and how it asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark.notebooks import load_job

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


class Connection:
    """Keeps the headers that it is given, as far as http.client takes them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, str]] = []

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        if any(not value.isprintable() for value in headers.values()):
            raise ValueError(f"Invalid header value {headers}")
        self.sent.append(headers)

    def getresponse(self) -> Any:
        return SimpleNamespace(status=200, read=lambda most: b"yes")

    def close(self) -> None: ...


def ask(job: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> dict[str, str]:
    """The headers of one call, with such a value behind the reference."""
    connection = Connection()
    monkeypatch.setenv("TOKEN", value)
    monkeypatch.setattr(job, "HTTPConnection", lambda *_, **__: connection)
    service = job.Service("http://prices.example/quote", 1.0, 1, "env:TOKEN")
    service(SimpleNamespace(topic="t", partition=0, offset=1, key=b"k", value=b"v"))
    return connection.sent[0]


@pytest.mark.parametrize("value", ["Bearer 1234\n", "Bearer 1234\r\n", " Bearer 1234\r\n\r\n"])
def test_line_breaks_around_a_token_are_left_out(
    job: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    assert ask(job, monkeypatch, value)["Authorization"] == "Bearer 1234"


@pytest.mark.parametrize(
    "value", ["Bearer 12\n34", "Bearer 12\r\n 34", "12\x7f34", "12\u202634", " "]
)
def test_a_token_that_no_header_can_hold_is_told_without_it(
    job: Any, monkeypatch: pytest.MonkeyPatch, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="of --authorization") as refused:
        ask(job, monkeypatch, value)
    with pytest.raises(SystemExit):
        job.parse_arguments([*USUAL, "--service", "http://x", "--authorization", "env:TOKEN"])
    error = capsys.readouterr().err
    assert "line break" in error
    assert not any(part in f"{error}{refused.value}" for part in ("12", "34"))


def test_a_token_that_only_executors_have_is_looked_for_by_them(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    job.parse_arguments([*USUAL, "--service", "http://x", "--authorization", "env:TOKEN"])


@pytest.mark.parametrize(("text", "found"), [("3", 3.0), ("", 0.0), ("Wed, 21 Oct 2026", 0.0)])
def test_how_long_a_busy_service_wants_to_be_left_alone(job: Any, text: str, found: float) -> None:
    assert job.seconds(text) == found
