"""How far a query is behind Kafka. There are two figures, in offsets, and `offsets_behind` computes
both of them for whoever shows them:

- the read lag is what lies between the query's read position and the end of the log. The read
  position is where the last batch ended that Spark has committed;
- the commit lag is what lies between the committed offset and the end of the log. With individual
  commits no record below the committed offset is pending; without them it is the read position.

In a progress they are the figures that Spark's Kafka source reports (`metrics` of a source), which
Python sources cannot do, and their sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keyrange.model.offsets import Positions, TopicPartition


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets behind the ends of the partitions: the least, the most, on average and in sum."""

    min_offsets: int
    max_offsets: int
    avg_offsets: float
    total_offsets: int


def offsets_behind(position: int | None, log_end: int | None) -> int | None:
    """How many offsets of a partition lie between a position and the end of its log; None where
    either is not known.

    An end before a position, from a leader that has not caught up, counts as 0.
    """
    if position is None or log_end is None:
        return None
    return max(log_end - position, 0)


def total_behind(known: Iterable[int | None]) -> int | None:
    """The sum over the partitions whose lag is known; None where there is none."""
    found = [each for each in known if each is not None]
    return sum(found) if found else None


def offsets_behind_latest(consumed: Positions, latest: Positions) -> Lag | None:
    """The lag over the partitions that both know; None where there is none.

    A partition that a batch has not planned yet has no position to count from.
    """
    behind = list(behind_by_partition(consumed, latest).values())
    if not behind:
        return None
    total = sum(behind)
    return Lag(min(behind), max(behind), total / len(behind), total)


def behind_by_partition(at: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """How many offsets each partition is behind, of those whose position and end are known."""
    found = ((each, offsets_behind(at.get(each), end)) for each, end in sorted(ends.items()))
    return {partition: behind for partition, behind in found if behind is not None}
