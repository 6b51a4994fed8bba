"""The files of a Spark streaming checkpoint that say what was planned and what was committed.

`offsets/<batch>` is `v1`, a line of metadata and a line per source (`-` where it had no offset);
`commits/<batch>` exists once the batch is done
(org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog, CommitLog).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from keyrange.core.checkpoint import Checkpoint, read_checkpoint
from keyrange.core.offsets import OffsetRange, TopicPartition
from keyrange.errors import InvalidError, error

_KNOWN: Final = "v1"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One file of `offsets/`: when it was planned (ms since 1970), and the end of every source.

    None stands for a source without an offset, or whose offset is not one of Kafka's.
    """

    batch_id: int
    planned_at_ms: int
    ends: tuple[Checkpoint | None, ...]


def read_planned_batch(batch_id: int, text: str) -> PlannedBatch:
    """Raises UNSUPPORTED_CHECKPOINT where the file has another version or is cut off."""
    lines = text.splitlines()
    if not lines or lines[0] != _KNOWN:
        found = lines[0][:20] if lines else "nothing"
        raise error(
            "UNSUPPORTED_CHECKPOINT", f"offsets of batch {batch_id} begin with '{found}', not 'v1'"
        )
    try:
        metadata = json.loads(lines[1])
        planned_at_ms = int(metadata.get("batchTimestampMs", 0))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise error(
            "UNSUPPORTED_CHECKPOINT", f"offsets of batch {batch_id} hold no readable metadata"
        ) from None
    return PlannedBatch(batch_id, planned_at_ms, tuple(_end(line) for line in lines[2:]))


def _end(line: str) -> Checkpoint | None:
    try:
        return read_checkpoint(json.loads(line))
    except InvalidError as failure:
        if failure.condition.name == "UNSUPPORTED_CHECKPOINT":
            raise
        return None
    except (RecursionError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a checkpoint says of a query.

    `planned` are the batches still on file in order; those above `committed` were not finished.
    """

    query_id: str
    planned: tuple[PlannedBatch, ...]
    committed: int | None

    @property
    def unfinished(self) -> tuple[PlannedBatch, ...]:
        least = -1 if self.committed is None else self.committed
        return tuple(batch for batch in self.planned if batch.batch_id > least)


def read_progress(
    query_id: str, planned: Sequence[PlannedBatch], commits: Sequence[int]
) -> Progress:
    ordered = tuple(sorted(planned, key=lambda batch: batch.batch_id))
    return Progress(query_id, ordered, max(commits, default=None))


def ranges_of(batch: PlannedBatch, before: PlannedBatch | None) -> list[Mapping[str, Any]]:
    """What a batch reads, per source and partition: source, topic, partition and an OffsetRange.

    The range is None where the start is not on file any more.
    """
    rows: list[Mapping[str, Any]] = []
    for source, end in enumerate(batch.ends):
        if end is None:
            continue
        start = before.ends[source] if before is not None and source < len(before.ends) else None
        for partition in sorted(end.positions):
            rows.append(
                {
                    "source": source,
                    "partition": partition,
                    "range": _range(partition, start or Checkpoint({}), end),
                }
            )
    return rows


def _range(partition: TopicPartition, start: Checkpoint, end: Checkpoint) -> OffsetRange | None:
    begin = end.start_of(partition, start)
    return None if begin is None else OffsetRange(begin, end.positions[partition])
