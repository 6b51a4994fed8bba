"""`keyrange checkpoint export`: what Spark's own Kafka connector needs to read on.

Two ways: the positions as `startingOffsets`, for a query with a new checkpoint; or a copy of the
checkpoint in which keyrange's offsets stand as the JVM connector writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import (
    check_agreement,
    check_all_done,
    lacking,
)
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.storage.model.spark_log import (
    CheckpointProgress,
    as_jvm_offsets,
    committed_end,
    first_positions,
    next_positions,
    write_initial_offsets,
)
from keyrange.storage.object_store import FAILURES


@dataclass(frozen=True, slots=True)
class TableOfCommits:
    """Where a commit table is, "" for none, and settings of the object store."""

    path: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)

    def known(self, mark: CommitMark) -> Snapshot:
        from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
        from keyrange.storage.delta_store import DeltaStore

        return DeltaCommitTable(DeltaStore(self.path, LAYOUT, self.storage), mark.source_id).known()


def kafka_sources(progress: CheckpointProgress) -> dict[int, Checkpoint]:
    """The sources whose last offset is one of Kafka's, by number."""
    ends = enumerate(progress.planned[-1].ends)
    return {number: end for number, end in ends if end is not None}


def choose_source(progress: CheckpointProgress, named: int | None) -> int:
    """The source to export; the only one of Kafka's where none is named."""
    sources = kafka_sources(progress)
    if named is None and len(sources) == 1:
        return next(iter(sources))
    if named is not None and named in sources:
        return named
    listed = ", ".join(
        f"{number} ({', '.join(sorted({p.topic for p in end.positions})) or 'no topic'})"
        for number, end in sources.items()
    )
    what = "must be named" if named is None else f"{named} is no source of Kafka's"
    raise invalid_options(f"--source {what}; those of this query are: {listed or 'none'}")


def starting_offsets(progress: CheckpointProgress, source: int) -> dict[TopicPartition, int]:
    """Where a new query has to start. Raises POSITION_NOT_ON_FILE, naming the partitions."""
    _check_whole([kafka_sources(progress)[source]])
    found = next_positions(progress, source)
    missing = [str(partition) for partition, at in found.items() if at is None]
    if missing or not found:
        named = f"of {', '.join(missing)}" if missing else "of any partition"
        raise error(
            "POSITION_NOT_ON_FILE",
            f"the checkpoint does not say where the next offset {named} to read is",
            source=source,
        )
    return {partition: at for partition, at in found.items() if at is not None}


def committed_below(
    positions: Mapping[TopicPartition, int],
    progress: CheckpointProgress,
    source: int,
    table: TableOfCommits,
) -> dict[TopicPartition, int]:
    """The positions of a query that commits individually, but of partitions with records that are
    not done the offset below which all are. Raises COMMITS_BEHIND where the table lacks the last
    batch that is committed; of one that is not, it may know or not."""
    states: Mapping[TopicPartition, PartitionState] = {}
    end = committed_end(progress, source)
    if end is not None and end.commits is not None:
        known = table.known(end.commits)
        if known.seq <= end.commits.seq:
            raise lacking(known, end.commits)
        states = known.states
    return {p: min(at, states[p].committed) if p in states else at for p, at in positions.items()}


def copy_checkpoint(
    origin: Directory, progress: CheckpointProgress, target: Directory, table: TableOfCommits
) -> list[int]:
    """Write a checkpoint that `format("kafka")` resumes from; returns the sources it is for.

    Raises BATCH_NOT_COMMITTED where a batch is unfinished: where it began to read is only in
    keyrange's part of the offset, and a replay without that would read something else. Of a query
    that commits individually COMMIT_TERMS_CHANGED where `table` has records that are not done.
    """
    sources = kafka_sources(progress)
    moved = [number for number, end in sources.items() if not end.foreign]
    ends = [sources[number] for number in moved]
    _check_whole(ends)
    try:
        _check(origin, progress, target, moved)
        for end in ends:
            if end.commits is not None:
                _check_done(end, end.commits, table)
        for path, data in _contents(origin, progress, moved):
            target.write(path, data)
        _check_unchanged(origin, progress)
        # Last, so that a copy that ended before is no checkpoint of this query.
        target.write("metadata", origin.read("metadata"))
    except FAILURES as failure:
        raise error(
            "CHECKPOINT_NOT_WRITTEN", f"the copy is not complete: {failure}", path=target.location
        ) from None
    return moved


def _check_whole(ends: Iterable[Checkpoint]) -> None:
    if any(end.ownership for end in ends):
        raise error(
            "PARTIAL_KEY_RANGES",
            "the query reads only some key ranges of its partitions, and Spark's own Kafka source "
            "would read all records behind its positions",
        )


def _check_done(end: Checkpoint, mark: CommitMark, table: TableOfCommits) -> None:
    if not table.path:
        raise invalid_options(
            "--commit-table has to be named: the query commits individually, and only the "
            "commit table says whether records below its positions are not done"
        )
    known = table.known(mark)
    check_agreement(known, end)
    check_all_done(known, 'the copy is for format("kafka")')


def _check(
    origin: Directory, progress: CheckpointProgress, target: Directory, moved: list[int]
) -> None:
    if progress.unfinished:
        listed = ", ".join(str(batch.batch_id) for batch in progress.unfinished)
        raise error("BATCH_NOT_COMMITTED", f"planned and not committed: batch {listed}")
    if not moved:
        raise invalid_options(
            "--to has nothing to change: keyrange did not write the last offsets of "
            f'{origin.location}, so format("kafka") can go on with it as it is'
        )
    for source in moved:
        starting_offsets(progress, source)
    if origin.holds(target):
        raise invalid_options(f"--to {target.location} lies in the checkpoint that is copied")
    if not target.is_empty():
        raise invalid_options(f"--to {target.location} exists and is not empty")


def _check_unchanged(origin: Directory, progress: CheckpointProgress) -> None:
    planned = [batch.batch_id for batch in progress.planned]
    if origin.numbered("offsets") != planned or origin.numbered("commits")[-1] != planned[-1]:
        raise error(
            "CHECKPOINT_NOT_WRITTEN",
            "the query went on while its checkpoint was copied: stop it first",
            path=origin.location,
        )


def _contents(
    origin: Directory, progress: CheckpointProgress, moved: list[int]
) -> Iterator[tuple[str, bytes]]:
    """The files of the copy, without `metadata`."""
    known = origin.files()
    batches = {str(batch.batch_id) for batch in progress.planned}
    for path in known:
        directory, _, name = path.rpartition("/")
        if directory == "offsets":
            # Hadoop's checksums beside them are left out: they are those of the other text.
            if name in batches:
                text = origin.read(path).decode("utf-8")
                yield path, as_jvm_offsets(text).encode()
        elif path != "metadata":
            yield path, origin.read(path)
    for source in moved:
        path = f"sources/{source}/0"
        if path not in known:
            yield path, write_initial_offsets(first_positions(progress, source))
