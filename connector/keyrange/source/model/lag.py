"""How far a query is behind Kafka, read from what Spark reports of its progress.

The figures are those that Spark's Kafka source reports (`metrics` of a source in a progress), which
Python sources cannot do, and their sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def offsets_behind_latest(consumed: Positions | None, latest: Positions | None) -> Lag | None:
    """The lag over the partitions that both know; None where there is none.

    A partition that a batch has not planned yet has no position to count from. An end before a
    position, from a leader that has not caught up, counts as 0.
    """
    if not consumed or not latest:
        return None
    behind = [
        max(end - consumed[partition], 0)
        for partition, end in latest.items()
        if partition in consumed
    ]
    if not behind:
        return None
    total = sum(behind)
    return Lag(min(behind), max(behind), total / len(behind), total)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """What keyrange reports of one source in a progress.

    `consumed` is the position behind the batch and `ends` the end of each partition as of when the
    batch was planned. `parts` is what the planning process reports of itself, by part.
    """

    consumed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    parts: Mapping[str, Mapping[str, Any]]

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """How many offsets each partition is behind, of those whose position and end are known."""
        return {
            partition: max(end - self.consumed[partition], 0)
            for partition, end in sorted(self.ends.items())
            if partition in self.consumed
        }

    @property
    def lag(self) -> Lag | None:
        """The lag over the partitions; None where positions or ends are not known."""
        return offsets_behind_latest(self.consumed, self.ends)


def read_source(source: Mapping[str, Any]) -> SourceOffsets | None:
    """A source of a progress; None if neither of its offsets is keyrange's.

    Offsets are JSON, as text or parsed. Raises INVALID_OFFSETS where they cannot be read.
    """
    end, latest = _document(source.get("endOffset")), _document(source.get("latestOffset"))
    if RESERVED not in end and RESERVED not in latest:
        return None
    return SourceOffsets(_positions(end), _positions(latest), _parts(latest))


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
