"""What a query reads: named topics, named partitions, or the topics that match a pattern.

Of each: `option`, the one that says so, `names`, whether it asks for a partition, be that there or
not, and `reads`, whether for any of a topic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, which have to exist."""

    option: ClassVar = "subscribe"
    topics: tuple[str, ...]

    def names(self, partition: TopicPartition) -> bool:
        return self.reads(partition.topic)

    def reads(self, topic: str) -> bool:
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions, which have to exist."""

    option: ClassVar = "assign"
    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({partition.topic for partition in self.partitions}))

    def names(self, partition: TopicPartition) -> bool:
        return partition in self.partitions

    def reads(self, topic: str) -> bool:
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose name matches, of which there may be none.

    `match` "full": the pattern describes the whole name, as Java's consumer has it. "search": it is
    found somewhere in the name, as Spark's Kafka source has it. `by_default`: nobody said which.
    """

    option: ClassVar = "subscribePattern"
    pattern: str
    match: Literal["full", "search"] = "full"
    by_default: bool = field(default=False, compare=False)

    def reads(self, topic: str) -> bool:
        compiled = re.compile(self.pattern)
        found = compiled.fullmatch(topic) if self.match == "full" else compiled.search(topic)
        return found is not None

    def names(self, partition: TopicPartition) -> bool:
        return self.reads(partition.topic)

    def leaves_out(self, topic: str) -> bool:
        """Whether Spark's Kafka source reads a topic by the same options, and this one does not."""
        found = self.by_default and re.search(self.pattern, topic) is not None
        return found and not self.reads(topic)


Subscription = Subscribe | Assign | SubscribePattern
