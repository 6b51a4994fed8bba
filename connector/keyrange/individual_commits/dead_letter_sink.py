"""Records that were given up: the record itself, its error, and where both are written.

`each_batch` writes the table before it commits, so that no record is committed without its letter,
and the topic after it, which is at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.model.commit import CommitTable
from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.reported_outcomes import rows_of
from keyrange.model.key_ranges import hash_of_record
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, DeadLetters

_OUTCOME: Final = {"outcome": ("topic", "partition", "offset", "error", "frames", "record")}
Place = tuple[TopicPartition, int]
Record = Mapping[str, Any]
# What is known of a record: its error, where that was raised, and itself.
Kept = dict[Place, tuple[str | None, Sequence[str], Record | None]]
_NONE: Final = (None, (), None)
# Letters by the record that each stands for.
Standing = dict[tuple[str, str, int, int], "DeadLetter"]


class DeadLetterSink:
    """The dead letter table, and the topic where one is named. Opened when something is dead."""

    def __init__(self) -> None:
        self._table: DeadLetters | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": None}

    def append(
        self,
        running: BatchRun,
        judged: Outcome,
        letters: Sequence[DeadLetter],
        standing: Standing,
    ) -> None:
        """To the table, before the batch is committed. A letter of `standing` stands for its record
        where the batch gives that up; where the record is done, that is noted, and it stands for
        nothing any more."""
        planned = running.plan.planned
        fresh = [letter for letter in letters if letter.record not in standing]
        for letter in letters:
            standing.pop(letter.record, None)
        done = [letter for letter in standing.values() if _is_done(letter, running, judged)]
        for letter in done:
            del standing[letter.record]
        if not (fresh or done):
            return
        table = self._opened(running.plan.commits)
        source_id, batch_id = planned.mark.source_id, planned.batch_id
        table.append(source_id, batch_id, fresh, running.now_ms)
        how = f"batch {batch_id} of source {source_id}"
        table.mark_replayed(done, "keyrange", how, running.now_ms)

    def standing(
        self,
        options: CommitOptions,
        source_id: str,
        table_of: Callable[[str], CommitTable],
    ) -> Standing:
        """The letters that drivers of the group have written for batches that they did not commit:
        their records come again."""
        sources = sorted({each.source_id for each in table_of(source_id).fences(options.group)})
        letters = self._opened(options).behind(
            sources, lambda source: table_of(source).known().batch_id
        )
        return {letter.record: letter for letter in letters}

    def _opened(self, options: CommitOptions) -> DeadLetters:
        if self._table is None:
            from keyrange.individual_commits.table.dead_letters import open_dead_letters

            self._table = open_dead_letters(options)
        return self._table

    def send(self, options: SourceOptions, letters: Sequence[DeadLetter]) -> None:
        """To the topic, at least once, after the batch was committed."""
        if letters and options.commits.dead_letter_topic:
            from keyrange.individual_commits.table.dead_letter_topic import send_dead_letters

            send_dead_letters(options.client, options.commits.dead_letter_topic, letters)

    def maintain(self) -> None:
        if self._table is not None:
            self._table.maintain()


def _is_done(letter: DeadLetter, running: BatchRun, judged: Outcome) -> bool:
    """Whether the batch has done a letter's record. One that was done before it was given up by
    then, and the letter stands for it."""
    partition = TopicPartition(letter.topic, letter.partition)
    if judged.states.topic_id_of(partition) != letter.topic_id:
        return False
    key_hash = hash_of_record(letter.key, letter.offset, running.plan.nulls_first)
    before, after = running.plan.states[partition], judged.states[partition]
    return not before.piece_of(key_hash).is_done(letter.offset) and after.piece_of(
        key_hash
    ).is_done(letter.offset)


def letters_of(running: BatchRun, judged: Outcome) -> list[DeadLetter]:
    """A dead letter for each record that the batch gave up."""
    dead = {partition: {h.offset: h for h in each} for partition, each in judged.dead.items()}
    if not dead:
        return []
    kept = _kept(running, dead)
    # What a job rejected by a DataFrame is not in the verdict as it was read.
    missing = {
        partition: [offset for offset in pending if kept.get((partition, offset), _NONE)[2] is None]
        for partition, pending in dead.items()
    }
    read = {} if running.is_worked_on else _read(running.batch, missing)
    return [
        _letter(running, partition, pending_record, kept, read)
        for partition, pending in sorted(dead.items())
        for _, pending_record in sorted(pending.items())
    ]


def _kept(running: BatchRun, dead: Mapping[TopicPartition, Mapping[int, PendingRecord]]) -> Kept:
    """What the verdict holds of dead records."""
    offsets = {offset for pending in dead.values() for offset in pending}
    return {
        (TopicPartition(topic, number), offset): (text, frames or (), record)
        for topic, number, offset, text, frames, record in running.reported(_OUTCOME, offsets)[
            "outcome"
        ]
    }


def _read(batch: DataFrame, missing: Mapping[TopicPartition, Sequence[int]]) -> dict[Place, Record]:
    """Dead records as the batch has them."""

    def column(name: str) -> Column:
        return F.col(name) if name in batch.columns else F.lit(None)

    names = ("topic", "partition", "offset", "key", "value", "headers")
    columns = [column(name).alias(name) for name in names]
    columns.append(F.unix_millis(column("timestamp")).alias("timestamp_ms"))
    return {
        (TopicPartition(row.topic, row.partition), row.offset): row.asDict(recursive=True)
        for row in rows_of(batch.select(*columns), missing)
    }


def _letter(
    running: BatchRun,
    partition: TopicPartition,
    pending_record: PendingRecord,
    kept: Kept,
    read: Mapping[Place, Record],
) -> DeadLetter:
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    plan, planned = running.plan, running.plan.planned
    place = (partition, pending_record.offset)
    text, frames, record = kept.get(place, _NONE)
    if record is None:
        record = read.get(place, {})
    text = running.told().errors.get(partition, {}).get(pending_record.offset) or text
    return DeadLetter(
        group=plan.commits.group,
        source_id=planned.mark.source_id,
        query_id=planned.query_id,
        batch_id=planned.batch_id,
        topic=partition.topic,
        topic_id=planned.end.topic_ids.get(partition.topic, ""),
        partition=partition.partition,
        offset=pending_record.offset,
        key=_bytes(record.get("key")),
        value=_bytes(record.get("value")),
        headers=tuple((each["key"], _bytes(each["value"])) for each in record.get("headers") or ()),
        timestamp_ms=record.get("timestamp_ms") or 0,
        error=text or _TEXTS.get(pending_record.cause, ""),
        frames=tuple(frames),
        cause=pending_record.cause,
        attempts=pending_record.deliveries,
        first_at_ms=pending_record.since_ms,
        last_at_ms=running.now_ms,
    )


_TEXTS: Final = {Cause.UNMENTIONED: "the job said nothing of it"}


def _bytes(value: Any) -> bytes | None:
    """A column as it came from Kafka, or as text that the query has made of it. What it has made
    into anything else is not the record's any more."""
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None
