"""The offsets that a query passes over because they were gone before it could read them
(failOnDataLoss=false): by interval, so that somebody can fetch them from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.offsets import OFFSET_MAX, PARTITION_MAX, OffsetRange, Positions, TopicPartition

# So many intervals are told with one batch; all are counted, and logged.
_TOLD_MAX: Final = 100
_NUMBERS: Final = {
    "partition": PARTITION_MAX,
    "fromOffset": OFFSET_MAX,
    "untilOffset": OFFSET_MAX,
}


@dataclass(frozen=True, slots=True)
class Lost:
    """`span` of a partition was not read, and cannot be."""

    partition: TopicPartition
    span: OffsetRange

    def __str__(self) -> str:
        return f"{self.partition} {self.span}"


class LostOffsets:
    """What one run has lost. The same records are looked at again and again until a batch has gone
    past them, and counted once."""

    def __init__(self) -> None:
        self._count = 0
        self._found: list[Lost] = []
        # By partition and its topic's id.
        self._counted: dict[tuple[TopicPartition, str], OffsetRange] = {}

    def add(self, partition: TopicPartition, span: OffsetRange, topic_id: str = "") -> Lost | None:
        """Note `span` as lost, of the topic with this id; returns what of it was not known yet."""
        known = self._counted.get((partition, topic_id), OffsetRange(0, 0))
        begin = span.from_offset
        if known.from_offset <= begin < known.until_offset:
            begin = known.until_offset
        lost = Lost(partition, OffsetRange(begin, span.until_offset))
        if not lost.span.size:
            return None
        self._counted[partition, topic_id] = span
        self._count += lost.span.size
        self._found.append(lost)
        return lost

    def planned(self) -> None:
        """A batch was planned, and what was found before it is told with it."""
        self._found = []

    def metrics(self) -> dict[str, Any]:
        """For a progress: the offsets of this run, and the intervals found since the last batch."""
        return {
            "offsets": self._count,
            "found": [
                {
                    "topic": lost.partition.topic,
                    "partition": lost.partition.partition,
                    "fromOffset": lost.span.from_offset,
                    "untilOffset": lost.span.until_offset,
                }
                for lost in self._found[:_TOLD_MAX]
            ],
        }


def passed_over(begins: Positions, ends: Positions, firsts: Positions) -> list[Lost]:
    """What a batch from `begins` to `ends` finds gone, where logs begin at `firsts`."""
    return [
        Lost(partition, OffsetRange(at, min(firsts[partition], ends[partition])))
        for partition, at in sorted(begins.items())
        if partition in ends and at < min(firsts.get(partition, at), ends[partition])
    ]


def left_behind(start: Positions, ends: Positions, gone: Collection[TopicPartition]) -> list[Lost]:
    """What was left of partitions that are gone, as far as somebody knows where they ended."""
    return [
        Lost(partition, OffsetRange(start[partition], ends[partition]))
        for partition in sorted(gone)
        if start.get(partition, 0) < ends.get(partition, 0)
    ]


def read_lost(found: object) -> tuple[Lost, ...]:
    """The intervals of a progress; what is none is left out."""
    rows = found if isinstance(found, list) else []
    return tuple(lost for row in rows[:_TOLD_MAX] if (lost := _read(row)) is not None)


def _read(row: Any) -> Lost | None:
    if not isinstance(row, Mapping) or not isinstance(topic := row.get("topic"), str):
        return None
    numbers: list[int] = []
    for name, most in _NUMBERS.items():
        value = row.get(name)
        if type(value) is not int or not 0 <= value <= most:
            return None
        numbers.append(value)
    partition, begin, end = numbers
    return Lost(TopicPartition(topic, partition), OffsetRange(begin, end))
