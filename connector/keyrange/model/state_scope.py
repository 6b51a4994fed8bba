"""Which partitions share the state of keys: each has its own, or those with the same number of all
topics have one.

A key that producers write to several topics lies in partitions of one number, if these topics have
as many partitions and the same partitioner. What is known of its state and its timers stands under
one of them, their home. One task reads a key range of all of them, so it has all records of a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class StateScope:
    """Partitions of one number share the state that stands in the partition of `topic`; without a
    topic each has its own."""

    topic: str = ""

    @property
    def is_shared(self) -> bool:
        return bool(self.topic)

    def home(self, partition: TopicPartition) -> TopicPartition:
        """The partition under which the state of a partition's keys stands."""
        return TopicPartition(self.topic, partition.partition) if self.topic else partition

    def homes(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of some partitions."""
        return {self.home(each) for each in partitions} if self.topic else set(partitions)

    def rank(self, partition: TopicPartition) -> tuple[int, bool, TopicPartition]:
        """In which order a task reads partitions: those of one number side by side, the one with
        the state first."""
        return (partition.partition, partition.topic != self.topic, partition)

    def groups(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[TopicPartition]]:
        """The partitions that share a state, in the order in which a task reads them, by their
        home."""
        if not self.topic:
            return {each: [each] for each in partitions}
        found: dict[TopicPartition, list[TopicPartition]] = {}
        for each in sorted(partitions, key=self.rank):
            found.setdefault(self.home(each), []).append(each)
        return found


# Each partition has a state of its own.
OWN_STATE = StateScope()
