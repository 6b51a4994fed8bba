"""The time that a job's timers and late records go by: what a user says of it, and as tasks and
driver know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from keyrange.options.value_parsers import argument_us

Late = Literal["drop", "deadLetter", "deliver"]
_LATE: Final = ("drop", "deadLetter", "deliver")
TIMESTAMP: Final = "timestamp"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The time at which things happened, as records tell it.

    `column` is the record's timestamp, a field of its value, `at` or `order.at`, or of its key,
    `key.at`: a timestamp, or a long with ms since 1970. `header` names a header instead, whose text
    is such a number or an ISO 8601 time. The watermark of a partition is the greatest time that
    was read in it less `delay`, and a record before it is late: the function does not get it
    ("drop"), it goes to the dead letters ("deadLetter"), or `record.late` is true ("deliver"). Keys
    of a range that lags behind its partition go by an earlier watermark: that of the batch which
    had the range's next record first.
    After `idle_after` without a record the watermark of a partition goes on as the clock does, if
    nothing is there to read: no record is late because the query was stopped or slow. A time that
    is more than `ahead` beyond the clock does not move the watermark.
    """

    column: str = TIMESTAMP
    delay: str = "0s"
    header: str | None = None
    late: Late = "drop"
    idle_after: str | None = None
    ahead: str = "1h"


@dataclass(frozen=True, slots=True)
class ProcessingTime:
    """The time of the batch, which its plan fixes: a batch that runs again sees the same."""


@dataclass(frozen=True, slots=True)
class JobTime:
    """As tasks and driver know it. `path`: of event time the column and the fields in it, or
    ("headers", name); empty stands for the time of the batch."""

    path: tuple[str, ...] = ()
    delay_us: int = 0
    late: str = "drop"
    idle_after_us: int | None = None
    ahead_us: int = 0

    @property
    def is_event_time(self) -> bool:
        return bool(self.path)

    @property
    def words(self) -> str:
        """Which time it is. Timers and windows that another one has made mean something else: a
        window would be written once by each."""
        if not self.is_event_time:
            return "ProcessingTime()"
        said = f"header={self.header!r}" if self.header is not None else repr(".".join(self.path))
        return f"EventTime({said})"

    @property
    def header(self) -> str | None:
        return self.path[1] if self.path[:1] == ("headers",) else None


def job_time(time: EventTime | ProcessingTime) -> JobTime:
    """Raises ValueError with what is wrong."""
    if isinstance(time, ProcessingTime):
        return JobTime()
    if not isinstance(time, EventTime):
        raise ValueError(
            "time must be keyrange.EventTime(...) or keyrange.ProcessingTime(), and is "
            f"{repr(time)[:100]}"
        )
    if time.late not in _LATE:
        raise ValueError(
            f"late must be drop, deadLetter or deliver, and is {str(time.late)[:40]!r}"
        )
    if time.header is not None and time.column != TIMESTAMP:
        raise ValueError("event time is in a column or in a header, and both are named")
    idle_after_us = None if time.idle_after is None else argument_us("idle_after", time.idle_after)
    return JobTime(
        _path(time),
        argument_us("delay", time.delay),
        time.late,
        idle_after_us,
        argument_us("ahead", time.ahead),
    )


def _path(time: EventTime) -> tuple[str, ...]:
    if time.header is not None:
        return ("headers", time.header)
    path = tuple(str(time.column).split("."))
    if not all(path):
        raise ValueError(f"column {str(time.column)[:100]!r} names no field")
    return path if path[0] in (TIMESTAMP, "value", "key") else ("value", *path)
