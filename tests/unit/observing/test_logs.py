"""Logs as JSON: what is in a line, what is not, and who asks for it."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from keyrange.observing import logs
from keyrange.options.secrets import parse_secret


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, Any]]:
    """A logger, and a function that says what it has written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("keyrange.test_logs")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield logger, lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)


def test_a_record_is_a_line(lines: Any) -> None:
    logger, written = lines
    logger.info("batch %d\nof %s", 7, "orders", extra={"keyrange": {"lag": 3, "message": "no"}})
    [line] = written()
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "INFO",
        "logger": "keyrange.test_logs",
        "message": "batch 7\nof orders",
        "lag": 3,
    }


def test_what_others_put_on_a_record_is_not_told(lines: Any) -> None:
    logger, written = lines
    logger.info("x", extra={"password": "s3cret", "keyrange_options": {"a": "s3cret"}})
    assert "s3cret" not in json.dumps(written())


def test_a_secret_is_not_told(lines: Any) -> None:
    logger, written = lines
    secret = parse_secret("s3cret")
    try:
        raise ValueError(f"{secret} {secret!r}")
    except ValueError:
        logger.exception(
            "options %s", {"kafka.sasl.password": secret}, extra={"keyrange": {"p": secret}}
        )
    [line] = written()
    assert "ValueError" in line["exception"]
    assert "s3cret" not in json.dumps(line)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("json", "json"), (" JSON ", "json"), ("text", "text"), ("", None), ("xml", None)],
)
def test_the_environment_says_which(said: str, expected: str | None) -> None:
    assert logs.wanted_format({logs.VARIABLE: said}) == expected
    assert logs.wanted_format({}) is None


PROGRAM = """
import logging, sys
from keyrange.observing import logs
{body}
logging.getLogger("keyrange.source.planning_session").info("held")
logging.getLogger("other").info("of others")
"""


def run(body: str, **environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    assert result.stdout == ""
    return result.stderr.splitlines()


def test_a_job_says_how_it_logs() -> None:
    assert [json.loads(line)["message"] for line in run("logs.configure('json')")] == [
        "held",
        "of others",
    ]
    assert run("logs.configure()")[0].endswith(" INFO held")
    assert json.loads(run("logs.configure()", KEYRANGE_LOG="json")[0])["message"] == "held"
    assert run("logs.configure('text')", KEYRANGE_LOG="json")[0].endswith(" INFO held")


def test_what_py4j_says_of_a_function_is_not_logged_twice() -> None:
    """Its text may quote a record."""
    said = "logging.getLogger('py4j.clientserver').error('s3cret')"
    assert "s3cret" not in "".join(run(f"logs.configure('json'); {said}"))


def test_a_process_of_somebody_else_is_left_alone_unless_it_is_asked_for() -> None:
    twice = "logs.follow_environment(); logs.follow_environment()"
    assert run(twice) == []
    [line] = run(twice, KEYRANGE_LOG="json")
    assert json.loads(line)["logger"] == "keyrange.source.planning_session"
    [line] = run(twice, KEYRANGE_LOG="text")
    assert line.endswith(" INFO held")
