"""commit.isolation=transactional: finished output stays in its verdict until everything before it
in its partition is done.

Rows of a batch between a partition's committed offset before and after are released; the others
stay where they are, and a later batch releases them when the pending record below them closes.
Manifests of such queries form a chain: each names the earlier batches that it may still need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.commit import CommitKind, CommitTable
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_columns import StateColumns
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.model.verdict_manifest import Floors, Manifest
from keyrange.individual_commits.reported_outcomes import is_output
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.checkpoint import Checkpoint, read_checkpoint
from keyrange.model.columns import PLACE
from keyrange.model.offsets import TopicPartition
from keyrange.work.outcome_rows import HIDDEN

Bounds = Mapping[TopicPartition, tuple[int, int]]
# Beside a job's columns: the batch of a row, and the last one that has rows of its record.
_BATCH: Final = f"{HIDDEN}_batch"
_LAST: Final = f"{HIDDEN}_last"


def staged(store: VerdictStore, planned: Planned, states: StateColumns) -> list[Manifest]:
    """The batches before this one with output that is not released, in their order.

    Raises VERDICT_DAMAGED where one that is needed is gone.
    """
    if not states.is_left or planned.start.commits is None or planned.batch_id == 0:
        return []
    before = needed(store, planned.batch_id - 1)
    earlier = [needed(store, batch_id) for batch_id in before.staged]
    return [each for each in [*earlier, before] if not is_released(each, states)]


def floors_of(
    earlier: Sequence[Manifest], before: Manifest, reached: Mapping[TopicPartition, int]
) -> dict[int, Floors]:
    """Below which offsets the output of each earlier batch was released: as far as the committed
    offset has `reached` with the last batch, or had before somebody set it back.

    `before` is the verdict of the last batch.
    """
    floors: dict[int, Floors] = {}
    for each in earlier:
        known = before.floors.get(each.batch_id, ())
        merged = {TopicPartition(topic, number): offset for topic, number, offset in known}
        for partition, offset in reached.items():
            merged[partition] = max(merged.get(partition, 0), offset)
        floors[each.batch_id] = tuple((*partition, at) for partition, at in sorted(merged.items()))
    return floors


def reached_at(
    table: CommitTable, seq: int, run_id: str, released: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """How far output was released with the last batch up to a commit: as far as the committed
    offsets came. Somebody may have set them back since, or while the batch was worked on.
    `released`: what the last commit of this run says of that."""
    known = table.known(seq)
    if known.run_id != run_id:
        released = {}
        while seq:
            commit = next(table.history(seq, seq + 1))
            if commit.kind is CommitKind.BATCH:
                released = commit.released
                break
            seq -= 1
        known = table.known(seq)
    return {**known.states.committed_offsets, **released}


def released_before(
    by_hand: Mapping[TopicPartition, PartitionState], judged: Outcome
) -> dict[TopicPartition, int]:
    """How far a batch releases output of partitions that were set back while it was worked on."""
    reached = judged.states.committed_offsets
    return {p: reached[p] for p, state in by_hand.items() if reached[p] > state.committed}


def needed(store: VerdictStore, batch_id: int) -> Manifest:
    """The verdict of an earlier batch. Raises VERDICT_DAMAGED where it is gone."""
    found = store.manifest_of(batch_id)
    if found is None:
        raise error(
            "VERDICT_DAMAGED",
            f"the verdict of batch {batch_id} is gone, and output in it was not released yet",
        )
    return found


def is_released(manifest: Manifest, states: StateColumns) -> bool:
    """Whether all output of a batch lies below the committed offsets."""
    end, committed = read_checkpoint(dict(manifest.end)), states.committed_offsets
    return not manifest.files or all(
        _is_other_topic(partition, end, states) or committed[partition] >= at
        for partition, at in end.positions.items()
    )


def _is_other_topic(partition: TopicPartition, end: Checkpoint, states: StateColumns) -> bool:
    """Whether a partition is gone, or one of another topic of that name by now."""
    topic_id, is_now = end.topic_ids.get(partition.topic, ""), states.topic_id_of(partition)
    return is_now is None or bool(topic_id and is_now and is_now != topic_id)


def released(
    verdicts: Sequence[tuple[Manifest, DataFrame]],
    bounds: Bounds,
    topic_ids: Mapping[str, str],
    floors: Mapping[int, Floors],
) -> DataFrame:
    """The output of some batches inside the bounds and not below their floors, the last one's
    columns.

    Where earlier batches take part each partition comes in the order of its offsets. Of a record
    that several worked on, because somebody has reset the commits, the last one's output counts.
    """
    last, _ = verdicts[-1]
    names = StructType.fromJson(dict(last.schema)).names
    frames = []
    for each, rows in verdicts:
        within = _within(rows, _left_of(each, bounds, topic_ids, floors.get(each.batch_id, ())))
        frames.append(within.withColumn(_BATCH, F.lit(each.batch_id)))
    if len(frames) == 1:
        return frames[0].select(*names)
    united = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    by_place = [F.col(f"{HIDDEN}.location.{name}") for name in PLACE]
    of_record = F.max(_BATCH).over(Window.partitionBy(*by_place))
    last_only = united.repartition(*by_place[:2]).withColumn(_LAST, of_record)
    last_only = last_only.where(F.col(_BATCH) == F.col(_LAST))
    return last_only.sortWithinPartitions(*by_place).select(*names)


def _left_of(
    manifest: Manifest, bounds: Bounds, topic_ids: Mapping[str, str], floors: Floors
) -> Bounds:
    """The bounds not below a batch's floors, of the topics that are still those that it read."""
    then = read_checkpoint(dict(manifest.end)).topic_ids
    least = {TopicPartition(topic, number): offset for topic, number, offset in floors}
    return {
        partition: (max(low, least.get(partition, low)), high)
        for partition, (low, high) in bounds.items()
        if then.get(partition.topic, "") == topic_ids.get(partition.topic, "")
    }


def _within(rows: DataFrame, bounds: Bounds) -> DataFrame:
    spans = [(*partition, low, high) for partition, (low, high) in bounds.items() if low < high]
    session = rows.sparkSession
    schema = "topic string, partition int, low bigint, high bigint"
    wanted = session.createDataFrame(spans, schema).alias("bounds")
    location = F.col(f"{HIDDEN}.location")
    inside: Any = (
        (location.topic == F.col("bounds.topic"))
        & (location.partition == F.col("bounds.partition"))
        & (location.offset >= F.col("bounds.low"))
        & (location.offset < F.col("bounds.high"))
    )
    return rows.where(is_output()).join(F.broadcast(wanted), inside, "left_semi")
