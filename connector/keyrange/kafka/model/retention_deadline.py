"""How long a query that is held back may wait before records that it has not read go.

Kafka deletes a log's oldest segments: those whose newest record is older than `retention.ms`, and
those that the log can do without and still hold `retention.bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from keyrange.model.offsets import Positions, TopicPartition

# Of what retention.bytes allows, so much may wait: sizes of records are sampled, and the log grows.
_BYTES_SHARE: Final = 0.5
# Of retention.ms, so much is kept for reading what is about to go; and never less than that, since
# a batch takes its time and clocks differ.
_MS_SHARE: Final = 0.1
_SPARE_LEAST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Retention:
    """What a topic keeps; None where there is no limit of a kind."""

    ms: int | None = None
    bytes: int | None = None


def young_since_ms(retention_ms: int, now_ms: int, check_interval_ms: int) -> int:
    """Records from this time on, in ms since 1970, stay for at least two more checks."""
    spare_ms = max(int(retention_ms * _MS_SHARE), 2 * check_interval_ms, _SPARE_LEAST_MS)
    return now_ms - retention_ms + spare_ms


def must_reach(
    start: Positions,
    latest: Positions,
    retentions: Mapping[str, Retention],
    young: Positions,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """How far each partition of `latest` has to be read though nothing is to be.

    `young` is the first record of a partition that stays for now, -1 where there is none. What is
    not known is not waited with: a topic without an entry in `retentions`, or one with `ms` whose
    `young` is missing, is read up to its end.
    """
    ends: dict[TopicPartition, int] = {}
    for partition, until in latest.items():
        at = start.get(partition, until)
        kept = retentions.get(partition.topic)
        reach = at if kept is not None else until
        if kept is not None and kept.ms is not None:
            first = young.get(partition, -1)
            reach = max(reach, until if first < 0 else min(first, until))
        if kept is not None and kept.bytes is not None:
            size = max(bytes_per_offset.get(partition, 0.0), 1.0)
            reach = max(reach, until - int(kept.bytes * _BYTES_SHARE / size))
        ends[partition] = reach
    return ends
