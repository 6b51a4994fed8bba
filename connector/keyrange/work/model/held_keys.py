"""Which keys wait while a task works on its records: a record of theirs is not done, and
comes again."""

from __future__ import annotations

from collections.abc import Set

from keyrange.kafka.model.offsets import TopicPartition


class HeldKeys:
    """The hashes of the keys of each partition that wait. Without `keeps_order` none do."""

    def __init__(self, keeps_order: bool) -> None:
        self._keeps_order = keeps_order
        self._held: dict[TopicPartition, set[int]] = {}

    def begin(self, partition: TopicPartition, held: Set[int]) -> None:
        """Records of a partition come, of one that was named before with other keys. Records of the
        keys `held` were not done in batches before."""
        self._held.setdefault(partition, set()).update(held)

    def of(self, partition: TopicPartition) -> set[int]:
        """Hashes of keys that have to wait; records without a key never do."""
        return self._held[partition]

    def failed(self, partition: TopicPartition, key_hash: int, comes_again: bool) -> bool:
        """A record is not done. What comes of its key waits for it if it `comes_again`, as one with
        a key that is not given up; whether it does."""
        waits = self._keeps_order and comes_again
        if waits:
            self._held[partition].add(key_hash)
        return waits
