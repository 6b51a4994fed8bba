"""commit.isolation=transactional: finished output stays in its verdict until everything before it
in its partition is done.

Rows of a batch between a partition's committed offset before and after are released; the others
stay where they are, and a later batch releases them when the pending record below them closes.
Manifests of such queries form a chain: each names the earlier batches that it may still need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.commit import CommitKind, CommitTable
from keyrange.individual_commits.model.offset_reset import is_set_back
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_columns import StateColumns
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.model.verdict_manifest import Left, Manifest
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.checkpoint import Checkpoint, read_checkpoint
from keyrange.model.columns import PLACE
from keyrange.model.offsets import OFFSET_MAX, Positions, TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.timer_places import BEFORE_ALL

_BYTES_PER_TASK: Final = 32 << 20

Bounds = Mapping[TopicPartition, tuple[int, int]]
# Beside a job's columns: the batch of a row, and the last one that has rows of its record.
_BATCH: Final = f"{HIDDEN}_batch"
_LAST: Final = f"{HIDDEN}_last"


class Span(NamedTuple):
    """Offsets [low, high) of a partition, for rows of timers [low, fired_high)."""

    topic: str
    partition: int
    low: int = BEFORE_ALL
    high: int = OFFSET_MAX
    fired_high: int = OFFSET_MAX


class SetBack(NamedTuple):
    """Where partitions were set back to behind a batch: what it and those before it have made of
    records from there on is made again. What fired is too, also in a batch that was worked on
    meanwhile."""

    batch_id: int
    ends: Positions


def staged(store: VerdictStore, planned: Planned, states: StateColumns) -> list[Manifest]:
    """The batches before this one with output that is not released, in their order.

    Raises VERDICT_DAMAGED where one that is needed is gone.
    """
    if not states.is_left or planned.start.commits is None or planned.batch_id == 0:
        return []
    before = needed(store, planned.batch_id - 1)
    earlier = [needed(store, batch_id) for batch_id in before.staged]
    return [each for each in [*earlier, before] if not is_released(each, states)]


def left_of(
    earlier: Sequence[Manifest], before: Manifest, reached: Positions, set_back: Sequence[SetBack]
) -> dict[int, Left]:
    """Of which offsets the output of each earlier batch may be released still: from where the
    committed offset has `reached` with the last batch, or had before somebody set it back, up to
    where that was: from there on output is made again.

    `before` is the verdict of the last batch.
    """
    left: dict[int, Left] = {}
    for each in earlier:
        spans = _spans(before.left.get(each.batch_id, ()))
        for at, offset in reached.items():
            known = spans.get(at, Span(*at))
            spans[at] = known._replace(low=max(known.low, offset))
        for back in set_back:
            for at, offset in back.ends.items():
                known = spans.get(at, Span(*at))
                high = min(known.high, offset) if each.batch_id <= back.batch_id else known.high
                spans[at] = Span(*at, known.low, high, min(known.fired_high, offset))
        left[each.batch_id] = tuple(sorted(spans.values()))
    return left


def _spans(left: Left) -> dict[TopicPartition, Span]:
    return {TopicPartition(*row[:2]): Span(*row) for row in left}


def ends_of_output(
    options: CommitOptions, table: CommitTable, at: Planned, run_id: str, released: Positions
) -> tuple[Positions, Sequence[SetBack]]:
    """How far output was released before a batch, and from where on it is made again; nothing
    where no output waits."""
    if not options.transactional:
        return {}, ()
    return _reached_at(table, at.mark.seq, run_id, released), tuple(_set_back_before(table, at))


def _reached_at(
    table: CommitTable, seq: int, run_id: str, released: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """How far output was released with the last batch up to a commit: as far as the committed
    offsets came. Somebody may have set them back since, or while the batch was worked on.
    `released`: what the last commit of this run says of that."""
    known = table.known(seq)
    if known.run_id != run_id:
        batches = (each for each in table.backwards(seq) if each.kind is CommitKind.BATCH)
        last = next(batches, None)
        released = last.released if last is not None else {}
        known = table.known(last.seq if last is not None else 0)
    return {**known.states.committed_offsets, **released}


def _set_back_before(table: CommitTable, at: Planned) -> Iterator[SetBack]:
    """What somebody has set back between the plans of the last batch and of this one."""
    # The commit of the last batch stands behind its plan.
    since = at.mark.seq if at.start.commits is None else at.start.commits.seq + 1
    for commit in table.history(since, at.mark.seq + 1) if since < at.mark.seq else ():
        if commit.kind is CommitKind.RESET:
            before = table.known(commit.seq - 1)
            ends = {
                partition: max(piece.scanned for piece in state.pieces)
                for partition, state in commit.states.items()
                if (was := before.states.get(partition)) is not None and is_set_back(was, state)
            }
            yield SetBack(before.batch_id, ends)


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
    return not manifest.has_output or all(
        _is_other_topic(partition, end, states) or committed[partition] >= at
        for partition, at in end.positions.items()
    )


def _is_other_topic(partition: TopicPartition, end: Checkpoint, states: StateColumns) -> bool:
    """Whether a partition is gone, or one of another topic of that name by now."""
    topic_id, is_now = end.topic_ids.get(partition.topic, ""), states.topic_id_of(partition)
    return is_now is None or bool(topic_id and is_now and is_now != topic_id)


@dataclass(frozen=True)
class Release:
    """What a batch releases: rows inside the `bounds` of their partition, its committed offsets
    before and after it, that are of the topic with its id, and of what is `left` of their batch.
    """

    batch_id: int
    bounds: Bounds
    topic_ids: Mapping[str, str]
    left: Mapping[int, Left]

    def spans(self, manifest: Manifest) -> list[Span]:
        """Of which offsets rows of a batch may be released now, by partition: those of the batch
        end where it did."""
        then = read_checkpoint(dict(manifest.end))
        left = _spans(self.left.get(manifest.batch_id, ()))
        found: list[Span] = []
        for at, (before, after) in self.bounds.items():
            # Of another topic of that name nothing is released.
            if then.topic_ids.get(at.topic, "") != self.topic_ids.get(at.topic, ""):
                continue
            own = left.get(at, Span(*at))
            # Nothing of the batch itself is out: timers fire behind records that were read before.
            low = max(own.low, before) if manifest.batch_id < self.batch_id else own.low
            high = min(own.high, after)
            if low < min(high, then.positions.get(at, high)):
                found.append(Span(*at, low, high, min(own.fired_high, after)))
        return found

    def rows(self, verdicts: Sequence[tuple[Manifest, DataFrame]], place: str) -> DataFrame:
        """The rows of batches that are released, with the columns of all of them; column `place`
        says which record a row is of.

        Where several batches take part each partition comes in the order of its offsets. Of a
        record that several worked on, because somebody has reset the commits, the last one's rows
        count. Each timer has fired once.
        """
        frames = [
            _within(rows, self.spans(each), place).withColumn(_BATCH, F.lit(each.batch_id))
            for each, rows in verdicts
        ]
        if len(frames) == 1:
            return frames[0]
        united = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        partition, at = _place(place)
        is_fired = _is_fired(united, place)
        of_record = F.max(F.when(~is_fired, F.col(_BATCH))).over(Window.partitionBy(*partition, at))
        count = tasks_for([each for each, _ in verdicts])
        last_only = united.repartition(count, *partition).withColumn(_LAST, of_record)
        # Rows of a partition are in one of Spark's already.
        return _sorted(last_only.where(is_fired | (F.col(_BATCH) == F.col(_LAST))), place)


def _place(name: str) -> tuple[list[Column], Column]:
    """The partition and the offset of a row."""
    topic, partition, offset = (F.col(f"{name}.{each}") for each in PLACE)
    return [topic, partition], offset


def _is_fired(rows: DataFrame, place: str) -> Column:
    """Whether a row is of a timer."""
    kind: Any = rows.select(place).schema[0].dataType
    if "fired" not in kind.names:
        return F.lit(False)
    return F.coalesce(F.col(f"{place}.fired"), F.lit(False))


def in_order(rows: DataFrame, place: str, count: int) -> DataFrame:
    """Rows as `released` has them, each partition in order and in one of Spark's `count`."""
    partition, _ = _place(place)
    return _sorted(rows.repartition(count, *partition), place)


def _sorted(rows: DataFrame, place: str) -> DataFrame:
    partition, at = _place(place)
    kind: Any = rows.select(place).schema[0].dataType
    within = [f"{place}.row"] if "row" in kind.names else []
    return rows.sortWithinPartitions(*partition, at, *within)


def tasks_for(manifests: Iterable[Manifest]) -> int:
    """How many tasks are to write what batches have made: a query of Spark's streaming would have
    as many as spark.sql.shuffle.partitions, for a few rows too."""
    return 1 + sum(each.output_bytes for each in manifests) // _BYTES_PER_TASK


def _within(rows: DataFrame, spans: Sequence[Span], place: str) -> DataFrame:
    schema = "topic string, partition int, low long, high long, fired_high long"
    wanted = rows.sparkSession.createDataFrame(list(spans), schema).alias("bounds")
    (topic, partition), at = _place(place)
    until = F.col("bounds.high")
    inside: Any = (
        (topic == F.col("bounds.topic"))
        & (partition == F.col("bounds.partition"))
        & (at >= F.col("bounds.low"))
        & (at < F.when(_is_fired(rows, place), F.col("bounds.fired_high")).otherwise(until))
    )
    return rows.join(F.broadcast(wanted), inside, "left_semi")
