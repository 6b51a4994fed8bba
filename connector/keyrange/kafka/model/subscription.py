"""What a query reads: named topics, named partitions, or the topics that match a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from keyrange.kafka.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, which have to exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions, which have to exist."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({partition.topic for partition in self.partitions}))


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose name matches, of which there may be none.

    `match` "full": the pattern describes the whole name, as Java's consumer has it. "search": it is
    found somewhere in the name, as Spark's Kafka source has it.
    """

    pattern: str
    match: Literal["full", "search"] = "full"

    def matches(self, topic: str) -> bool:
        compiled = re.compile(self.pattern)
        found = compiled.fullmatch(topic) if self.match == "full" else compiled.search(topic)
        return found is not None


Subscription = Subscribe | Assign | SubscribePattern
