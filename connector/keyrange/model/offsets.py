"""Topic-partitions, half-open offset ranges, and positions: where a reader stands per partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final, NamedTuple, TypeVar

EARLIEST: Final = -2
LATEST: Final = -1
# Up to where LATEST goes: the end of the log, or the last stable offset.
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SHOWN_CHARACTERS: Final = 40


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_whole(value: object) -> bool:
    """Whether a user names a whole number, numpy's too: it would read "1" and cut 2.5."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def topic_name_fault(text: str) -> str:
    """Why Kafka would let no topic be named so, or ""."""
    if _TOPIC_NAME.fullmatch(text) and text not in (".", ".."):
        return ""
    shown = f"'{text[:_SHOWN_CHARACTERS]}'"
    if len(text) > _SHOWN_CHARACTERS:
        shown = f"a name of {len(text)} characters that begins {shown}"
    return (
        f"{shown} cannot be a topic: Kafka allows 1 to 249 characters of [a-zA-Z0-9._-], and "
        "neither . nor .."
    )


# The next offset to read, per partition.
Positions = Mapping[TopicPartition, int]

_Value = TypeVar("_Value")


def by_topic(flat: Mapping[TopicPartition, _Value]) -> dict[str, list[tuple[int, _Value]]]:
    """The form of Kafka's messages: topic to (partition, value) pairs."""
    nested: dict[str, list[tuple[int, _Value]]] = {}
    for (topic, partition), value in flat.items():
        nested.setdefault(topic, []).append((partition, value))
    return nested


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The same of partitions without a value: topic to numbers."""
    nested: dict[str, list[int]] = {}
    for topic, partition in dict.fromkeys(partitions):
        nested.setdefault(topic, []).append(partition)
    return nested


def nested(flat: Mapping[TopicPartition, _Value]) -> dict[str, dict[str, _Value]]:
    """The form of Spark's JSON: topic to partition, as text, to value; in order of partition."""
    found: dict[str, dict[str, _Value]] = {}
    for partition in sorted(flat):
        found.setdefault(partition.topic, {})[str(partition.partition)] = flat[partition]
    return found


def by_partition(document: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """What `nested` has made, with its values as they are. Raises ValueError for what it cannot
    have made."""
    if not isinstance(document, dict):
        raise ValueError("it is not by topic")
    for topic, numbers in document.items():
        if not isinstance(topic, str) or not isinstance(numbers, dict):
            raise ValueError(f"it is not by partition of {topic}")
        for number, value in numbers.items():
            partition = int(number)
            if str(partition) != number or not 0 <= partition <= PARTITION_MAX:
                raise ValueError(f"{number} is no partition of {topic}")
            yield TopicPartition(topic, partition), value


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets from `from_offset` up to but not including `until_offset`."""

    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        """How many offsets the range spans, which may be more than the records in it."""
        return max(self.until_offset - self.from_offset, 0)

    def __str__(self) -> str:
        return f"[{self.from_offset}, {self.until_offset})"


def pending(start: Positions, end: Positions) -> dict[TopicPartition, OffsetRange]:
    """The ranges between two positions that hold at least one offset, in order of partition."""
    both = (partition for partition in sorted(end) if partition in start)
    return {p: OffsetRange(start[p], end[p]) for p in both if start[p] < end[p]}
