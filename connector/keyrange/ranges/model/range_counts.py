"""Into how many key ranges a partition is cut, and where, when nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.key_ranges import SPACE, KeyRange, split_evenly

# More ranges than tasks, so that the line can be cut where the bytes are.
_AUTO_RANGES_PER_TASK: Final = 4
_RANGES_MAX: Final = 1024


def auto_ranges(
    ranges: Mapping[TopicPartition, OffsetRange],
    bytes_per_offset: Mapping[TopicPartition, float],
    cores: int,
) -> dict[TopicPartition, int]:
    """How many ranges each partition gets: by its share of the bytes, so that one hot partition has
    the cores of all."""
    sizes = {p: max(span.size * bytes_per_offset[p], 1.0) for p, span in ranges.items()}
    total = sum(sizes.values())
    wanted = {p: -int(-cores * size // total) for p, size in sizes.items()}
    return {
        p: min(count * _AUTO_RANGES_PER_TASK, _RANGES_MAX) if count > 1 else 1
        for p, count in wanted.items()
    }


def even_ranges(count: int) -> list[KeyRange]:
    """The whole space in ranges of equal size."""
    return split_evenly(SPACE, count)
