"""The files of a Spark streaming checkpoint that say what was planned and what was committed.

`offsets/<batch>` is `v1`, a line of metadata and a line per source (`-` where it had no offset);
`commits/<batch>` exists once the batch is done
(org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog, CommitLog).
`sources/<n>/0` is the JVM connector's own: where its first batch began
(org.apache.spark.sql.kafka010.KafkaSourceInitialOffsetWriter). keyrange keeps that in the offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from keyrange.errors import InvalidError, KeyrangeError, error
from keyrange.model.checkpoint import RESERVED, Checkpoint, read_checkpoint, read_positions
from keyrange.model.offsets import OffsetRange, Positions, TopicPartition

_KNOWN: Final = "v1"
# The end of the year 9999, the last that can be shown as a date.
_TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
# Spark tells listeners of a batch in a thread of its own, a moment after it.
_TELLING_MS: Final = 15_000
_VERSION = re.compile(r"^v([0-9]{1,9})\Z", re.ASCII)


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
    lines = _lines(text)
    if lines[0] != _KNOWN:
        found = lines[0][:20] or "nothing"
        raise unsupported(batch_id, f"begin with '{found}', not 'v1'")
    try:
        metadata = json.loads(lines[1])
        planned_at_ms = int(metadata.get("batchTimestampMs", 0))
        if not 0 <= planned_at_ms <= _TIMESTAMP_MS_MAX:
            raise ValueError("no time")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise unsupported(batch_id, "hold no readable metadata") from None
    if not lines[2:] or any(_is_cut_off(line) for line in lines[2:]):
        raise unsupported(batch_id, "are cut off: part of the file is there")
    return PlannedBatch(batch_id, planned_at_ms, tuple(_end(line) for line in lines[2:]))


def unsupported(batch_id: int, what: str, **where: object) -> KeyrangeError:
    return error("UNSUPPORTED_CHECKPOINT", f"offsets of batch {batch_id} {what}", **where)


def _lines(text: str) -> list[str]:
    # Not splitlines(): what other sources write may hold separators that only Python knows.
    return text.removesuffix("\n").split("\n")


def _is_cut_off(line: str) -> bool:
    """Whether a source's line is the beginning of a document. All else may be another source's."""
    if not line.startswith("{"):
        return False
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return True
    except (RecursionError, ValueError):
        return False
    return False


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
class CheckpointProgress:
    """What a checkpoint says of a query.

    `planned` are the batches still on file in order; those above `committed` were not finished.
    `initial` are the positions that `sources/<n>/0` holds, by source.
    """

    query_id: str
    planned: tuple[PlannedBatch, ...]
    committed: int | None
    initial: Mapping[int, Positions] = field(default_factory=dict)

    @property
    def unfinished(self) -> tuple[PlannedBatch, ...]:
        least = -1 if self.committed is None else self.committed
        return tuple(batch for batch in self.planned if batch.batch_id > least)

    @property
    def commit_sources(self) -> set[str]:
        """The sources of individual commits that the last batch was planned from."""
        ends = self.planned[-1].ends if self.planned else ()
        return {end.commits.source_id for end in ends if end is not None and end.commits}


def read_progress(
    query_id: str,
    planned: Sequence[PlannedBatch],
    commits: Sequence[int],
    initial: Mapping[int, Positions] = MappingProxyType({}),
) -> CheckpointProgress:
    """A checkpoint's files as one. Batch 0 of the JVM connector began at its `initial`."""
    ordered = sorted(planned, key=lambda batch: batch.batch_id)
    if ordered and ordered[0].batch_id == 0:
        ends = (
            replace(end, initial=initial[source])
            if end is not None and end.foreign and source in initial
            else end
            for source, end in enumerate(ordered[0].ends)
        )
        ordered[0] = replace(ordered[0], ends=tuple(ends))
    return CheckpointProgress(query_id, tuple(ordered), max(commits, default=None), initial)


def ranges_of(batch: PlannedBatch, before: PlannedBatch | None) -> list[Mapping[str, Any]]:
    """What a batch reads, per source and partition: source, topic, partition and an OffsetRange.

    The range is None where the start is not on file any more.
    """
    rows: list[Mapping[str, Any]] = []
    for source, end in enumerate(batch.ends):
        if end is not None:
            start = _end_of(before, source) or Checkpoint({})
            for partition in sorted(end.positions):
                found = _range(partition, start, end)
                rows.append({"source": source, "partition": partition, "range": found})
    return rows


def untold(progress: CheckpointProgress, told: int, now_ms: int) -> bool:
    """Whether a listener that told of batch `told` last should have told of later ones by now."""
    # The batch after it was done when the one after that was planned.
    return any(
        batch.batch_id > told + 1 and now_ms - batch.planned_at_ms > _TELLING_MS
        for batch in progress.planned
    )


def _range(partition: TopicPartition, start: Checkpoint, end: Checkpoint) -> OffsetRange | None:
    begin = end.start_of(partition, start)
    return None if begin is None else OffsetRange(begin, end.positions[partition])


def next_positions(progress: CheckpointProgress, source: int) -> dict[TopicPartition, int | None]:
    """The next offset to read of each partition of a source, when only what is committed counts.

    None where it is not on file. A planned batch that is not committed says which partitions there
    are and where those begin that it met first.
    """
    committed = committed_end(progress, source)
    planned = _end_of(progress.unfinished[0], source) if progress.unfinished else None
    if planned is None:
        return dict(committed.known) if committed is not None else {}
    start = committed or Checkpoint({})
    return {partition: planned.start_of(partition, start) for partition in planned.positions}


def committed_end(progress: CheckpointProgress, source: int) -> Checkpoint | None:
    """Where the last batch that is committed ended; None where none is on file."""
    done = next((each for each in progress.planned if each.batch_id == progress.committed), None)
    return _end_of(done, source)


def first_positions(progress: CheckpointProgress, source: int) -> dict[TopicPartition, int]:
    """Where the oldest batch on file began to read a source; where it ended, if that is lost."""
    end = _end_of(progress.planned[0], source) or Checkpoint({})
    return {partition: end.initial.get(partition, at) for partition, at in end.positions.items()}


def _end_of(batch: PlannedBatch | None, source: int) -> Checkpoint | None:
    return batch.ends[source] if batch is not None and source < len(batch.ends) else None


def jvm_offset(positions: Positions) -> str:
    """Positions as the JVM connector writes them: sorted, without spaces or a reserved key."""
    document = Checkpoint(positions).to_json()
    del document[RESERVED]
    return json.dumps(document, separators=(",", ":"))


def as_jvm_offsets(text: str) -> str:
    """A file of `offsets/` with keyrange's offsets as the JVM connector writes them."""
    lines = _lines(text)
    for number, line in enumerate(lines[2:], 2):
        end = _end(line)
        if end is not None and not end.foreign:
            # Also of what is absent: it would be read from its beginning when it is back.
            lines[number] = jvm_offset(end.known)
    return "\n".join(lines)


def read_initial_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The positions in `sources/<n>/0`, which only the JVM connector writes.

    The first byte says nothing: it is 0, and Spark 2.1.0 wrote a length there and no line with a
    version after it. Raises UNSUPPORTED_CHECKPOINT where the version is newer than known, and
    INVALID_OFFSETS where the bytes are damaged.
    """
    try:
        text = data[1:].decode("utf-8")
        if text.startswith("v"):
            line, _, text = text.partition("\n")
            _check_version(line)
        document = json.loads(text)
    except (RecursionError, ValueError):
        message = "the initial offsets are damaged: they hold no JSON"
        raise error("INVALID_OFFSETS", message) from None
    return read_positions(document, least=0)


def _check_version(line: str) -> None:
    version = _VERSION.match(line)
    if version is None or int(version[1]) < 1:
        raise error("INVALID_OFFSETS", "the initial offsets are damaged: they hold no version")
    if int(version[1]) > 1:
        message = f"the initial offsets have format version {int(version[1])}, known is up to 1"
        raise error("UNSUPPORTED_CHECKPOINT", message)


def write_initial_offsets(positions: Positions) -> bytes:
    """`sources/<n>/0` as the JVM connector writes it."""
    return b"\0" + f"v1\n{jvm_offset(positions)}".encode()
