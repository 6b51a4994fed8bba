"""Which records are late, and how far the event time of a partition has come."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.model.figures import StateFigures
from keyrange.model.offsets import TopicPartition
from keyrange.work.event_times import MS_US, event_times, with_times
from keyrange.work.job_time import JobTime
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import OutcomeRows
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.task_context import Task
from keyrange.work.user_errors import said

LATE: Final = "late"
_LATE: Final = said("its event time is before the watermark of its partition")
_NO_TIME: Final = said("it has no event time, or none in the years 1 to 9999")


class EventTimes:
    """Of the records of one task."""

    def __init__(self, time: JobTime, task: Task, now_ms: int, figures: StateFigures) -> None:
        """`now_ms`: the time of the batch."""
        self._time, self._task, self._figures = time, task, figures
        self._limit_us = now_ms * MS_US + time.ahead_us
        # The greatest event time of each partition that counts, in microseconds since 1970.
        self._latest_us: dict[TopicPartition, int] = {}
        self._late: Counter[TopicPartition] = Counter()

    def admitted(
        self, stretch: RecordStretch, clock_us: int, not_done: OutcomeRows
    ) -> RecordStretch:
        """The records that a function is given. Where late ones are among them, column `late` says
        which. A record that comes again was not late when it came first."""
        times_us, has_time = event_times(stretch, self._time)
        is_read = np.ones(len(times_us), bool)
        is_read[[*stretch.unreadable]] = False
        is_ahead = has_time & (times_us > self._limit_us)
        counted = times_us[has_time & ~is_ahead]
        if len(counted):
            latest_us = int(counted.max())
            known_us = self._latest_us.get(stretch.partition, latest_us)
            self._latest_us[stretch.partition] = max(known_us, latest_us)
        again = self._task.known(stretch.partition).again
        is_new = np.ones(len(times_us), bool)
        if again:
            is_new = ~np.isin(stretch.offsets, np.fromiter(again, np.int64, len(again)))
        self._figures.ahead += int((is_ahead & is_new).sum())
        is_late = has_time & is_new & (times_us < clock_us)
        self._figures.late += int(is_late.sum())
        self._late[stretch.partition] += int(is_late.sum())
        left_out = is_read & ~has_time
        for at in np.flatnonzero(left_out).tolist():
            self._task.fail(stretch, at, Cause.NO_TIME, _NO_TIME, not_done)
        if self._task.job.mode == "arrow":
            stretch = with_times(stretch, pa.array(times_us, mask=~has_time), clock_us)
        if self._time.late == "deliver":
            if was_late := self._task.known(stretch.partition).late:
                is_late |= np.isin(stretch.offsets, np.fromiter(was_late, np.int64))
            column = pa.field(LATE, pa.bool_(), False)
            batch = stretch.batch.append_column(column, pa.array(is_late))
            stretch = replace(stretch, batch=batch)
        else:
            left_out |= is_late
            if self._time.late == "deadLetter":
                for at in np.flatnonzero(is_late).tolist():
                    self._task.fail(stretch, at, Cause.LATE, _LATE, not_done)
            else:
                self._task.count(stretch, np.flatnonzero(is_late))
        return stretch.at(np.flatnonzero(~left_out)) if left_out.any() else stretch

    def rows(self) -> list[tuple[Any, ...]]:
        """What a task says of the event time of its partitions."""
        return [(*p, latest_us, self._late[p]) for p, latest_us in sorted(self._latest_us.items())]
