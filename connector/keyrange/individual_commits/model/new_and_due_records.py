"""What a batch hands out of a partition: new records of each key range, and pending records that
are due. `delivery_columns.py` works it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange


@dataclass(frozen=True, slots=True)
class CellDelivery:
    """The offsets that are new to the keys in `span`; none where both are the same."""

    span: KeyRange
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class PartitionDelivery:
    """What one batch hands out of a partition.

    It moves the partition's position from `start` to `end`. `cells` cover the hash space once.
    `redelivered` are pending records that are handed out again, by offset. `held` are the places of
    keys with a pending record that is not: what comes of them has to wait. `spans` are the key
    ranges it is read in.
    """

    start: int
    end: int
    cells: tuple[CellDelivery, ...]
    redelivered: tuple[PendingRecord, ...] = ()
    held: frozenset[int] = frozenset()
    spans: tuple[KeyRange, ...] = ()

    @property
    def reach(self) -> OffsetRange:
        """The offsets that all of it lies in."""
        spans = [OffsetRange(cell.from_offset, cell.until_offset) for cell in self.cells]
        spans = [span for span in spans if span.size]
        spans += [OffsetRange(record.offset, record.offset + 1) for record in self.redelivered]
        return OffsetRange(
            min((span.from_offset for span in spans), default=self.end),
            max((span.until_offset for span in spans), default=self.end),
        )


PartitionDeliveries = Mapping[TopicPartition, PartitionDelivery]
