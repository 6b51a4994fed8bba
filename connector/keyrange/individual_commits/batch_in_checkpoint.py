"""What Spark's checkpoint says of the batch that runs: which query it is of, and its offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from keyrange.errors import error
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.storage.checkpoint_files import unreadable
from keyrange.storage.directory import Directory
from keyrange.storage.model.sink_driver import application_of
from keyrange.storage.model.spark_log import PlannedBatch, read_planned_batch
from keyrange.storage.object_store import FAILURES


@dataclass(frozen=True, slots=True)
class Planned:
    """A source's part of a batch as it was planned. The batches up to `finished` are in Spark's
    commit log; -1: none. It is among them where another run of the query was faster."""

    query_id: str
    batch_id: int
    start: Checkpoint
    end: Checkpoint
    finished: int

    @property
    def is_of_one_source(self) -> bool:
        """Whether the batch before was planned by the source that planned this one."""
        return bool(now := _source_of(self.end)) and _source_of(self.start) == now

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.end.positions}

    @property
    def mark(self) -> CommitMark:
        """Of a source that commits individually."""
        assert self.end.commits is not None
        return self.end.commits

    @property
    def application(self) -> str:
        """Whose transactions a sink is written by, one for each batch."""
        return application_of(self.query_id, _source_of(self.end))


def _source_of(offset: Checkpoint) -> str:
    return offset.source_id if offset.commits is None else offset.commits.source_id


@dataclass
class LastRead:
    """What was read last in a run of a query: the batch behind it begins there, and Spark has
    finished it. `storage`: settings of the object store."""

    storage: Mapping[str, str] = field(default_factory=dict)
    query_id: str = ""
    batch: PlannedBatch | None = None


def read_planned(location: str, batch_id: int, last: LastRead | None = None) -> Planned:
    """The part of the source that commits individually. Raises as `read_offsets` does, and
    NOT_COMMITTED_INDIVIDUALLY where not exactly one source of the batch does."""
    found = read_offsets(location, batch_id, last)
    found = [each for each in found if each.end.commits is not None]
    if len(found) != 1:
        raise error(
            "NOT_COMMITTED_INDIVIDUALLY",
            f"{len(found)} sources of the query commit individually",
            path=location,
            batch=batch_id,
        )
    return found[0]


def check_not_overtaken(known: Snapshot, batch_id: int, location: str) -> None:
    """The verdict of a batch behind which another one is committed is gone: the function would be
    called once more. Raises CONCURRENT_QUERY."""
    if known.batch_id > batch_id:
        message = f"another run of the query has committed batch {known.batch_id} before this one"
        raise error("CONCURRENT_QUERY", message, path=location, batch=batch_id)


def check_query(spark: SparkSession, planned: Planned, location: str) -> None:
    """Raises OTHER_CHECKPOINT where the query that runs is not that of the checkpoint. Over Spark
    Connect nothing says which one runs."""
    try:
        running = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    except Exception:
        return
    if running and planned.query_id and running != planned.query_id:
        raise error(
            "OTHER_CHECKPOINT",
            f"the query that runs is {running}, and the checkpoint is of {planned.query_id}",
            path=location,
            batch=planned.batch_id,
        )


def last_source(location: str, storage: Mapping[str, str]) -> str | None:
    """The source of a query that commits individually, by its last batch; None where there is none.
    Raises as `read_planned` does."""
    try:
        last = max(Directory(location, storage).numbered("offsets"), default=None)
    except FAILURES:
        return None
    if last is None:
        return None
    return read_planned(location, last, LastRead(storage)).mark.source_id


def read_offsets(location: str, batch_id: int, last: LastRead | None = None) -> list[Planned]:
    """The parts of a batch of keyrange's sources; `last` is read from and written to. Raises
    INVALID_CHECKPOINT_PATH where the checkpoint does not hold the batch, CHECKPOINT_UNREADABLE
    where it cannot be reached."""
    last = last or LastRead()
    before = last.batch if last.batch and last.batch.batch_id == batch_id - 1 else None
    finished = batch_id - 1
    try:
        directory = Directory(location, last.storage)
        batch = _read(directory, batch_id)
        if before is None:
            metadata = json.loads(directory.read("metadata"))
            last.query_id = str(metadata.get("id", "")) if isinstance(metadata, dict) else ""
            before = _read(directory, batch_id - 1) if batch_id > 0 else None
            finished = _finished(directory, batch_id)
    except FAILURES as failure:
        what = f"batch {batch_id} cannot be read from the checkpoint"
        raise unreadable(location, failure, what) from None
    query_id, last.batch = last.query_id, batch
    starts = before.ends if before is not None else ()
    return [
        Planned(
            query_id,
            batch_id,
            (starts[at] if at < len(starts) else None) or Checkpoint({}),
            end,
            finished,
        )
        for at, end in enumerate(batch.ends)
        if end is not None
    ]


def _finished(directory: Directory, batch_id: int) -> int:
    """The last batch that Spark has finished, up to one that is asked for; -1: none."""
    # Spark finishes a batch before it plans the next one.
    for each in (batch_id, batch_id - 1):
        if each == -1 or directory.size(f"commits/{each}") is not None:
            return each
    return max((each for each in directory.numbered("commits") if each < batch_id), default=-1)


def _read(directory: Directory, batch_id: int) -> PlannedBatch:
    text = directory.read(f"offsets/{batch_id}").decode("utf-8")
    return read_planned_batch(batch_id, text)
