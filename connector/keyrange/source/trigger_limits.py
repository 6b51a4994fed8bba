"""How much of what is pending a batch takes, and when: limits by offsets and by bytes.

The arithmetic by offsets is the JVM connector's (`rateLimit` of KafkaMicroBatchStream): each
partition gets its share of the limit, a share below one is rounded up so that small partitions do
not starve, others are rounded down; the sum is close to the limit, not exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from keyrange.model.offsets import OFFSET_MAX, OffsetRange, Positions, TopicPartition, pending
from keyrange.options import SourceOptions

# The bytes of an offset of each partition of some ranges.
SizesOf = Callable[[Mapping[TopicPartition, OffsetRange]], Mapping[TopicPartition, float]]


class TriggerLimits:
    """The limits of one run; it remembers when a batch was last let through."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._fired_ms: int | None = None
        # The part of both limits that is in force.
        self.part = 1.0

    def waits(
        self, start: Positions, latest: Positions, now_ms: int, at_once: bool = False
    ) -> bool:
        """Whether there is less than a batch has to have. It waits no longer than its delay after
        the last one; the first one of a run does not wait (`delayBatch` of KafkaMicroBatchStream).
        `at_once`: this one does not either, and the delay of the next one counts from it."""
        least, delay_ms = self._options.min_offsets_per_trigger, self._options.max_trigger_delay_ms
        if least is None:
            return False
        since_ms = self._fired_ms
        is_early = not at_once and since_ms is not None and now_ms - since_ms < delay_ms
        if is_early and sum(span.size for span in pending(start, latest).values()) < least:
            return True
        self._fired_ms = now_ms
        return False

    def end(
        self,
        start: Positions,
        latest: Positions,
        sizes_of: SizesOf,
        late: Mapping[TopicPartition, float],
    ) -> dict[TopicPartition, int]:
        """How far a batch goes. `late` are offsets of each partition that it reads besides."""
        end = dict(latest)
        options = self._options
        if options.max_bytes_per_trigger is not None:
            found = sizes_of(pending(start, end))
            sizes = {p: found.get(p, 0.0) for p in end}
            late_bytes = sum(late[p] * sizes[p] for p in late)
            left = left_for_new(int(options.max_bytes_per_trigger * self.part), late_bytes)
            end = admit(start, end, left, sizes)
        if options.max_offsets_per_trigger is not None:
            left = left_for_new(
                int(options.max_offsets_per_trigger * self.part), sum(late.values())
            )
            end = admit(start, end, left)
        return end


def admit(
    start: Positions,
    end: Positions,
    most: int,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> dict[TopicPartition, int]:
    """The end of a batch of about `most` offsets over all partitions, or with `bytes_per_offset` of
    about so many bytes of log."""
    weights = dict.fromkeys(end, 1.0) if bytes_per_offset is None else bytes_per_offset
    ranges = pending(start, end)
    total = sum(span.size * weights[partition] for partition, span in ranges.items())
    if total <= most:
        return dict(end)
    admitted = dict(end)
    for partition, span in ranges.items():
        share = most * (span.size / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        admitted[partition] = min(span.until_offset, span.from_offset + offsets, OFFSET_MAX)
    return admitted


def left_for_new(limit: int, late: float) -> int:
    """What a limit leaves to new records beside so much that is late: at least half of it, so that
    what is late holds up nothing."""
    return max(limit - int(late), limit // 2, 1)
