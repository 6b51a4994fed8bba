"""Where a consumer stands: what it reads, how far, and what of it is paused."""

from __future__ import annotations

import threading

from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.rebalance import Sharing
from keyrange.consumer.records import Partition, offset_of
from keyrange.consumer.settings import ConsumerSettings
from keyrange.consumer.transaction import Transaction
from keyrange.errors import error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.security.exposure import warn_of_exposure
from keyrange.members.executor_names import Surroundings, find_name, name_settings
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition


class ConsumerPositions:
    """The part of `keyrange.Consumer` that neither reads nor commits."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        warn_of_exposure(settings.source.client)
        self._cluster = Cluster(settings.source.client)
        self._name = find_name(name_settings(settings.members), Surroundings())
        self._holding = OwnedRanges(settings, self._cluster, self._name.name)
        self._listener = KeyRangeListener()
        self._assigned = self._closed = False
        self._sharing: Sharing | None = None
        # The block that is open, and whether anything was handed out or said in it.
        self._block: Transaction | None = None
        self._in_use = False
        self._thread = threading.get_ident()

    def subscription(self) -> set[str]:
        """The topics that are subscribed to, or found to match the pattern."""
        return set(self._sharing.topics) if self._sharing is not None else set()

    def ready(self) -> None:
        """State is warm for what on_key_ranges_announced has told: it may come."""
        self._check()
        if self._sharing is not None:
            self._sharing.ready()

    def assignment(self) -> dict[TopicPartition, list[KeyRange]]:
        """The key ranges that are read."""
        return self._holding.spans

    def pause(self, *partitions: Partition) -> None:
        """`poll` returns nothing of these partitions until `resume`, or until this consumer has
        none of their key ranges any more.

        Membership, ranges and commits go on, and so does gap.timeout.ms: what has waited too long
        comes with `resume`. Raises CONSUMER_STATE for a partition without a range of this consumer.
        """
        self._check()
        self._holding.pause(partitions, pauses=True)

    def resume(self, *partitions: Partition) -> None:
        """`poll` returns records of these partitions again. Raises CONSUMER_STATE as `pause`."""
        self._check()
        self._holding.pause(partitions, pauses=False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return set(self._holding.paused)

    def position(self, partition: Partition) -> int:
        """The least offset that `poll` may return next of this consumer's ranges of a partition,
        but for records that wait longer than gap.timeout.ms. Raises CONSUMER_STATE as `pause`."""
        self._check()
        return self._holding.position(TopicPartition(*partition))

    def committed(self, partition: Partition) -> int | None:
        """The group's committed offset of any partition: all records before it are done, whoever
        has their key ranges. None where the group has not begun with it.

        Reads the commit table. Raises UNKNOWN_TOPIC_OR_PARTITION, and as table and brokers do.
        """
        self._check()
        return self._holding.committed(TopicPartition(*partition))

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on from `offset` with this consumer's key ranges of a partition.

        Back: what it was handed out from there on and has not acknowledged comes again, with the
        next `poll` and no delivery more. What is acknowledged or committed does not. Forward: what
        was handed out to nobody before `offset` is passed over, and counts as done with the next
        `commit`; what was handed out waits on for its acknowledgement. Raises SEEK_REFUSED for an
        offset below the group's committed one, or behind the end of the log; INVALID_OFFSET;
        CONSUMER_STATE as `pause`.
        """
        self._check(outside_of_blocks="seek")
        self._holding.seek(TopicPartition(*partition), offset_of(offset))

    def still_working(self) -> None:
        """What `poll` has returned is still worked on: max.poll.interval.ms begins anew, as with a
        `poll`. Ranges that are to move wait for the next `poll`; gap.timeout.ms goes on."""
        self._check()
        if self._sharing is not None:
            self._sharing.member.polled()

    @property
    def _keeps_ranges(self) -> bool:
        """Ranges that are to move wait for the end of a block of which something is in use."""
        return self._block is not None and self._in_use

    def _check(self, outside_of_blocks: str = "") -> None:
        if outside_of_blocks and self._block is not None:
            message = f"{outside_of_blocks} was called within a transaction: end it first"
            raise error("CONSUMER_STATE", message)
        if self._closed:
            raise error("CONSUMER_STATE", "the consumer is closed")
        if threading.get_ident() != self._thread:
            raise error("CONSUMER_STATE", "another thread uses this consumer: give each its own")
