"""Logs for programs: a line of JSON for each record, where the environment or a caller asks for it.

Only what keyrange says is in a line: time, level, logger, message, and the fields that it gave to
the record under `keyrange`. Attributes that others have put on a record are left out: nobody has
looked at what is in them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from keyrange.text.escaping import one_line, plain

VARIABLE: Final = "KEYRANGE_LOG"
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
_NAME: Final = "keyrange"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, _NAME, None)
        if isinstance(fields, dict):
            document |= {name: each for name, each in fields.items() if name not in document}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return plain(json.dumps(document, default=str))


class TextFormatter(logging.Formatter):
    """A log record as a line for people, and its traceback below it."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def wanted_format(environment: Any = os.environ) -> LogFormat | None:
    """What KEYRANGE_LOG says; None where it says nothing, or nothing that is known."""
    try:
        return LogFormat(environment.get(VARIABLE, "").strip().lower())
    except ValueError:
        return None


def json_line(level: int, logger: str, message: str, **fields: Any) -> str:
    """A line as a log record would have it, for what is said without a logger."""
    said = {"name": logger, "levelname": logging.getLevelName(level), "msg": message, _NAME: fields}
    return JsonFormatter().format(logging.makeLogRecord(said))


def configure(log_format: LogFormat | str | None = None, level: int = logging.INFO) -> None:
    """Let this process log to stderr, as text or as JSON; where nothing is said, as KEYRANGE_LOG
    says, and else as text.

    For programs of one's own, such as jobs: it replaces what the root logger had.
    """
    chosen = LogFormat(log_format) if log_format else wanted_format() or LogFormat.TEXT
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(chosen))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Every call into the JVM is logged there, at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # What a function of foreachBatch raises Spark tells as well, and its text may quote a record.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)


def follow_environment() -> None:
    """Where KEYRANGE_LOG asks for it, let keyrange log to stderr from INFO on, in a process that
    somebody else has set up, such as a worker of Spark's. Else nothing changes."""
    chosen = wanted_format()
    logger = logging.getLogger(_NAME)
    if chosen is None or any(isinstance(each, _Handler) for each in logger.handlers):
        return
    handler = _Handler(sys.stderr)
    handler.setFormatter(_formatter(chosen))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Once is enough.
    logger.propagate = False


class _Handler(logging.StreamHandler[Any]):
    """The handler that follows the environment."""


def _formatter(chosen: LogFormat) -> logging.Formatter:
    return JsonFormatter() if chosen is LogFormat.JSON else TextFormatter()
