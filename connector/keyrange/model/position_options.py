"""Where a query starts or ends, as the options say it: before any cluster was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST for all partitions."""

    which: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset each, or EARLIEST or LATEST; `rest` for partitions without one.

    With `rest` None exactly the partitions that exist have to be named.
    """

    each: Mapping[TopicPartition, int]
    rest: int | None = None


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record at or after a time, the same for all partitions.

    `unmatched` says where a partition without such a record stands: LATEST, where its log ends when
    it is asked, or None, an error.
    """

    timestamp_ms: int
    unmatched: int | None


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The first record at or after a time for each partition; see `Offsets` and `Timestamp`."""

    each: Mapping[TopicPartition, int]
    unmatched: int | None
    rest: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What a Kafka consumer group has committed; `rest` for partitions without a commit."""

    group_id: str
    rest: int | None = None


@dataclass(frozen=True, slots=True)
class PositionSpec:
    """A place in the log for every partition, and the option that says it, for errors; `by_default`
    where nobody gave one."""

    option: str
    positions: Everywhere | Offsets | Timestamp | Timestamps | GroupOffsets
    by_default: bool = field(default=False, compare=False)
