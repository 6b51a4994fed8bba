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

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keyrange.kafka.model.offsets import Positions, TopicPartition
from keyrange.source.model.checkpoint import RESERVED, read_positions


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


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """What keyrange reports of one source in a progress.

    `consumed` is the position behind the batch and `ends` the end of each partition as of when the
    batch was planned. `parts` is what the planning process reports of itself, by part.
    `uncommitted` are the committed offsets of the partitions that had pending records then, or
    keys that have not got everything.
    """

    consumed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    parts: Mapping[str, Mapping[str, Any]]
    uncommitted: Mapping[TopicPartition, int]

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """The read lag of each partition whose position and end are known."""
        return behind_by_partition(self.consumed, self.ends)

    @property
    def lag(self) -> Lag | None:
        """The read lag over the partitions; None where positions or ends are not known."""
        return offsets_behind_latest(self.consumed, self.ends)

    @property
    def commit_lag(self) -> Lag | None:
        """The commit lag over the partitions, known where the read lag is.

        What was pending when the batch was planned counts as pending behind it too, and the batch's
        own new records as done: what became of them is not known yet.
        """
        committed = {p: self.uncommitted.get(p, at) for p, at in self.consumed.items()}
        return offsets_behind_latest(committed, self.ends)


def read_source(source: Mapping[str, Any]) -> SourceOffsets | None:
    """A source of a progress; None if neither of its offsets is keyrange's.

    Offsets are JSON, as text or parsed. Raises INVALID_OFFSETS where they cannot be read.
    """
    end, latest = _document(source.get("endOffset")), _document(source.get("latestOffset"))
    if RESERVED not in end and RESERVED not in latest:
        return None
    parts = _parts(latest)
    uncommitted = _document(parts.get("commits", {}).get("committed"))
    return SourceOffsets(_positions(end), _positions(latest), parts, _positions(uncommitted))


def _parts(latest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    reserved = latest.get(RESERVED)
    metrics = reserved.get("metrics") if isinstance(reserved, dict) else None
    found = metrics if isinstance(metrics, dict) else {}
    return {name: part for name, part in found.items() if isinstance(part, dict)}


def _document(offset: Any) -> dict[str, Any]:
    """An offset's JSON object; empty for what other sources write, and where there is none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}


def _positions(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return read_positions({k: v for k, v in document.items() if k != RESERVED}, least=0)
