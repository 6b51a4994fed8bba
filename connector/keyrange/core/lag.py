"""How far a query is behind Kafka, read from what Spark reports of its progress.

The figures and their names are those of Spark's Kafka source (`metrics` of a source in a progress),
which Python sources cannot report there; `totalOffsetsBehindLatest` is added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keyrange.core.checkpoint import RESERVED, read_positions
from keyrange.core.offsets import Positions, TopicPartition


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets behind the ends of the partitions: the least, the most, on average and in sum."""

    min_offsets: int
    max_offsets: int
    avg_offsets: float
    total_offsets: int

    def metrics(self) -> dict[str, int | float]:
        return {
            "minOffsetsBehindLatest": self.min_offsets,
            "maxOffsetsBehindLatest": self.max_offsets,
            "avgOffsetsBehindLatest": self.avg_offsets,
            "totalOffsetsBehindLatest": self.total_offsets,
        }


@dataclass(frozen=True, slots=True)
class SourceLag:
    """A keyrange source of a query. `lag` is None where positions or ends are not known.

    `mirror` holds the counts of the Kafka group that the positions are told to, if there is one.
    """

    description: str
    lag: Lag | None
    mirror: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryLag:
    """One progress of a query: after which batch, and its keyrange sources. `name` may be None."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    sources: tuple[SourceLag, ...]

    def __str__(self) -> str:
        return f"query {self.name or self.query_id}, batch {self.batch_id}: " + "; ".join(
            f"offsets behind latest: min {lag.min_offsets:,}, max {lag.max_offsets:,}, "
            f"avg {lag.avg_offsets:,.1f}"
            if (lag := source.lag)
            else "offsets behind latest are not known"
            for source in self.sources
        )


def offsets_behind_latest(consumed: Positions | None, latest: Positions | None) -> Lag | None:
    """The lag over the partitions that both know; None where there is none.

    A partition that a batch has not planned yet has no position to count from. An end before a
    position, from a leader that has not caught up, counts as 0.
    """
    if not consumed or not latest:
        return None
    behind = [max(end - consumed[place], 0) for place, end in latest.items() if place in consumed]
    if not behind:
        return None
    total = sum(behind)
    return Lag(min(behind), max(behind), total / len(behind), total)


def read_source_lag(source: Mapping[str, Any]) -> SourceLag | None:
    """The lag of one source of a progress; None of a source that is not keyrange's.

    Offsets are JSON, as text or parsed. Raises INVALID_OFFSETS where keyrange's cannot be read.
    """
    end, latest = _document(source.get("endOffset")), _document(source.get("latestOffset"))
    if RESERVED not in end and RESERVED not in latest:
        return None
    mirror: Any = latest.get(RESERVED)
    for name in ("metrics", "mirror"):
        mirror = mirror.get(name) if isinstance(mirror, dict) else None
    return SourceLag(
        description=str(source.get("description", "")),
        lag=offsets_behind_latest(_positions(end), _positions(latest)),
        mirror=mirror if isinstance(mirror, dict) else {},
    )


def read_behind(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """How many offsets each partition is behind, of those whose position and end are known."""
    consumed = _positions(_document(source.get("endOffset")))
    latest = _positions(_document(source.get("latestOffset")))
    return {
        place: max(end - consumed[place], 0)
        for place, end in sorted(latest.items())
        if place in consumed
    }


def read_ends(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Where the partitions end, as of when the batch was planned."""
    return _positions(_document(source.get("latestOffset")))


def read_parts(source: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What the planning process has told of itself, by part."""
    reserved: Any = _document(source.get("latestOffset")).get(RESERVED)
    metrics = reserved.get("metrics") if isinstance(reserved, dict) else None
    found = metrics if isinstance(metrics, dict) else {}
    return {name: part for name, part in found.items() if isinstance(part, dict)}


def read_query_lag(progress: Mapping[str, Any]) -> QueryLag | None:
    """The lag of a query's keyrange sources; None where it has none. Raises as its parts do."""
    sources = tuple(filter(None, map(read_source_lag, progress["sources"])))
    if not sources:
        return None
    return QueryLag(
        query_id=str(progress["id"]),
        run_id=str(progress["runId"]),
        name=progress.get("name"),
        batch_id=int(progress["batchId"]),
        sources=sources,
    )


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
