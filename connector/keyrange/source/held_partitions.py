"""Partitions that take in less than there is, and why: people are told when it begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

import numpy as np

from keyrange.individual_commits.model.delivery_columns import DeliveryColumns
from keyrange.model.offsets import Positions, TopicPartition

_log = logging.getLogger(__name__)


class HeldPartitions:
    """Those of one run."""

    def __init__(self) -> None:
        self._held: set[tuple[TopicPartition, str]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def say(
        self, why: str, held: Mapping[TopicPartition, str], there: Container[TopicPartition]
    ) -> None:
        """A warning with a text for each that is `held` now, and a line where that is over, of the
        partitions that are `there`."""
        for partition, text in held.items():
            if (partition, why) not in self._held:
                self._held.add((partition, why))
                _log.warning("%s", text)
        for partition, reason in sorted(self._held):
            if reason == why and partition not in held and partition in there:
                self._held.remove((partition, reason))
                _log.info("partition %s takes in everything again", partition)


def slow_texts(
    deliveries: DeliveryColumns, ends: Positions, half: int
) -> dict[TopicPartition, str]:
    """Of the partitions with key ranges that a batch does not read to its end, because they have
    `half` of the records or more that may be pending."""
    part = deliveries.cells.part
    until = np.fromiter(map(ends.__getitem__, deliveries), np.int64, len(deliveries))
    count = np.bincount(part[deliveries.until_offsets < until[part]], minlength=len(until))
    slow = zip(deliveries.states.where(count > 0), count[count > 0].tolist(), strict=True)
    return {
        partition: f"{ranges} of {len(deliveries[partition].cells)} key ranges of partition "
        f"{partition} take in less: they have {half} records or more that are not done "
        "(max.num.ranges.to.commit, max.bytes.ranges.to.commit)"
        for partition, ranges in slow
    }
