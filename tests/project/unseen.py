"""What tests of secrets ask: is one seen in what is logged or told of a failure?"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from pathlib import Path

import pytest

# Stands in passwords, and nowhere else.
MARK = "qZ7-never-to-be-seen"
_TESTS = str(Path(__file__).parents[1])


def whole_text(failure: BaseException) -> str:
    """As tools print a failure that print most of it: with its causes and all local values, but
    for those of tests."""
    made = traceback.TracebackException.from_exception(failure, capture_locals=True)
    made.stack[:] = [each for each in made.stack if not each.filename.startswith(_TESTS)]
    assert made.stack
    return "".join(made.format())


def log_everything(caplog: pytest.LogCaptureFixture) -> None:
    """All loggers at DEBUG, with their records kept."""
    caplog.set_level(logging.DEBUG)
    # Put back by caplog: another test asks that this logger is held at INFO.
    caplog.set_level(logging.DEBUG, logger="kafka")


def check_log(caplog: pytest.LogCaptureFixture, secrets: Iterable[str] = (MARK,)) -> None:
    """No secret is in what was logged, nor in what the records hold besides."""
    shown = "\n".join([caplog.text, *(str(vars(record)) for record in caplog.records)])
    assert not [each for each in secrets if each in shown]
