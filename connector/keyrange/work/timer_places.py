"""Where rows of timers stand among those of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from keyrange.model.offsets import TopicPartition

# A column of such places alone.
FIRED: Final = "fired"


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
