"""Where rows of timers stand among those of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.model.offsets import TopicPartition
from keyrange.work.model.work_order import TaskPartition
from keyrange.work.record_stretches import Numbers, RecordStretch, cell_numbers

# A column of such places alone.
FIRED: Final = "fired"
# The place before the first record of a partition.
BEFORE_ALL: Final = -1


def timer_places(
    partition: TopicPartition, times_us: Sequence[int], offsets: Sequence[int | None]
) -> pa.RecordBatch:
    """Of rows of timers that were due at some times, in microseconds since 1970: each stands behind
    the record at its offset, or with None before all of the batch."""
    count = len(times_us)
    places = {
        "topic": pa.array([partition.topic] * count, pa.string()),
        "partition": pa.array([partition.partition] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array(times_us, pa.int64()).cast(pa.timestamp("us", "UTC")),
        FIRED: pa.array([True] * count, pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(places)


class TimerPlaces:
    """Behind which records timers of a task fire, if that is `asked`. `bounds` are the lower ends
    of the cells of partitions, of which `known` says what the task knows."""

    def __init__(
        self,
        bounds: Mapping[TopicPartition, Numbers],
        known: Callable[[TopicPartition], TaskPartition],
        asked: bool,
    ) -> None:
        self._bounds, self._known, self.asked = bounds, known, asked
        # Of each cell the last record that was worked on, BEFORE_ALL for none.
        self._last: dict[TopicPartition, Numbers] = {}

    def came(self, stretch: RecordStretch) -> None:
        """Records were worked on."""
        if not self.asked:
            return
        bounds = self._bounds[stretch.partition]
        last = self._last.setdefault(stretch.partition, np.full(len(bounds), BEFORE_ALL))
        # The last one that is written stays.
        last[cell_numbers(bounds, stretch.key_hashes)] = stretch.offsets

    def behind(self, partition: TopicPartition, key_hash: int, has_waited: bool) -> int | None:
        """The offset behind which rows of a key's timer stand: that of the last record that was
        read for its key range, or, where it `has_waited` for records, worked on in this batch. None
        stands before all records of the batch."""
        begins, worked_on = self._known(partition).begins, self._last.get(partition)
        if worked_on is None and not begins:
            return None
        # Records of other key ranges may be far ahead of the next ones of its key.
        cell = int(cell_numbers(self._bounds[partition], np.array([key_hash]))[0])
        last = BEFORE_ALL if worked_on is None else int(worked_on[cell])
        if begins and not has_waited:
            last = max(last, begins[cell] - 1)
        return last if begins or last != BEFORE_ALL else None

    def of_failed(self, partition: TopicPartition, behind: int | None) -> int | None:
        """As `behind`, of a timer that has failed, whose key's records have waited since: where
        rows are held it stands where it did then, or before all where nobody asked that."""
        if not self._known(partition).begins:
            return None
        return BEFORE_ALL if behind is None else behind
