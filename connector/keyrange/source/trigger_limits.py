"""How much one batch reads, by the options: the limits of a trigger, in offsets and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from keyrange.kafka.model.offsets import OffsetRange, Positions, TopicPartition, pending
from keyrange.options import SourceOptions
from keyrange.source.model.batch_limits import admit, holds_back, left_for_new

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
        """Whether there is less than a batch has to have, and its delay is not over. `at_once`: it
        does not wait, and the delay of the next one counts from it."""
        least, delay_ms = self._options.min_offsets_per_trigger, self._options.max_trigger_delay_ms
        if least is None:
            return False
        held = holds_back(start, latest, least, delay_ms, self._fired_ms, now_ms)
        if held and not at_once:
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
