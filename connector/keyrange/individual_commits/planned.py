"""What Spark's checkpoint says of the batch that runs: which query it is of, and its offsets."""

from __future__ import annotations

import json
from dataclasses import dataclass

from keyrange.errors import error
from keyrange.source.model.checkpoint import Checkpoint, CommitMark
from keyrange.storage.directory import FAILURES, Directory
from keyrange.storage.model.spark_log import PlannedBatch, read_planned_batch


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch as it was planned. Batches up to `finished` are in Spark's commit log; -1: none."""

    query_id: str
    batch_id: int
    start: Checkpoint
    end: Checkpoint
    mark: CommitMark
    finished: int

    @property
    def application(self) -> str:
        """Whose transactions a sink is written by, one for each batch."""
        return f"keyrange:{self.query_id}:{self.mark.source_id}"


def read_planned(location: str, batch_id: int) -> Planned:
    """Raises INVALID_CHECKPOINT_PATH where the checkpoint does not hold the batch, and
    NOT_COMMITTED_INDIVIDUALLY where not exactly one source of it commits individually."""
    try:
        directory = Directory(location)
        metadata = json.loads(directory.read("metadata"))
        batch = _read(directory, batch_id)
        before = _read(directory, batch_id - 1) if batch_id > 0 else None
        finished = max(directory.numbered("commits"), default=-1)
    except FAILURES as failure:
        raise error(
            "INVALID_CHECKPOINT_PATH",
            f"the checkpoint does not hold batch {batch_id}: {failure}",
            path=location,
        ) from None
    marked = [at for at, end in enumerate(batch.ends) if end is not None and end.commits]
    if len(marked) != 1:
        raise error(
            "NOT_COMMITTED_INDIVIDUALLY",
            f"{len(marked)} sources of the query commit individually",
            path=location,
            batch=batch_id,
        )
    [at] = marked
    end = batch.ends[at]
    assert end is not None
    assert end.commits is not None
    start = before.ends[at] if before is not None and at < len(before.ends) else None
    query_id = str(metadata.get("id", "")) if isinstance(metadata, dict) else ""
    return Planned(query_id, batch_id, start or Checkpoint({}), end, end.commits, finished)


def _read(directory: Directory, batch_id: int) -> PlannedBatch:
    text = directory.read(f"offsets/{batch_id}").decode("utf-8")
    return read_planned_batch(batch_id, text)
