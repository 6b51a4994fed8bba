"""The dead letters of a batch whose records are committed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from keyrange.errors import error
from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.dead_letter_sink import OUTCOME, DeadLetterSink, Record, letter_of
from keyrange.individual_commits.failed_timers import timer_letters
from keyrange.individual_commits.model.commit import CommitTable
from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.individual_commits.model.verdict_columns import Outcome
from keyrange.individual_commits.reported_outcomes import rows_of
from keyrange.model.key_ranges import hash_of_record
from keyrange.model.offsets import TopicPartition
from keyrange.model.value_forms import raw_column
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, Letter, Subject

Place = tuple[TopicPartition, int]
# What is known of a record: its error, where that was raised, and itself.
Kept = dict[Place, tuple[str | None, Sequence[str], Record | None]]
_NONE: Final = (None, (), None)
# Letters by what each stands for.
Standing = dict["Subject", "Letter"]


def append_letters(
    sink: DeadLetterSink,
    running: BatchRun,
    letters: Sequence[Letter],
    standing: Standing,
) -> Standing:
    """To the table, before the batch is committed. A letter of `standing` stands for its record or
    its timer where the batch gives that up, and is returned; where the record is done, that is
    noted, and it stands for nothing any more. Nobody says of a timer that it has fired after
    all."""
    planned, judged = running.plan.planned, running.judged
    given_up = {letter.subject for letter in letters}
    stood = {subject: standing.pop(subject) for subject in given_up & standing.keys()}
    fresh = [letter for letter in letters if letter.subject not in stood]
    done = [each for each in _records(standing) if _is_done(each, running, judged)]
    for letter in done:
        del standing[letter.subject]
    if not (fresh or done):
        return stood
    table = sink.table(running.plan.commits)
    source_id, batch_id = planned.mark.source_id, planned.batch_id
    table.append(source_id, batch_id, fresh, running.now_ms)
    how = f"batch {batch_id} of source {source_id}"
    table.mark_replayed(done, "keyrange", how, running.now_ms)
    return stood


def standing_letters(
    sink: DeadLetterSink,
    options: CommitOptions,
    source_id: str,
    table_of: Callable[[str], CommitTable],
) -> Standing:
    """The letters that drivers of the group have written for batches that they did not commit:
    their records come again."""
    sources = sorted({each.source_id for each in table_of(source_id).fences(options.group)})
    letters = sink.table(options).behind(sources, lambda source: table_of(source).known().batch_id)
    return {letter.subject: letter for letter in letters}


def _records(standing: Standing) -> Iterator[DeadLetter]:
    """The letters of records."""
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    return (each for each in standing.values() if isinstance(each, DeadLetter))


def _is_done(letter: DeadLetter, running: BatchRun, judged: Outcome) -> bool:
    """Whether the batch has done a letter's record. One that was done before it was given up by
    then, and the letter stands for it."""
    partition = TopicPartition(letter.topic, letter.partition)
    if judged.states.topic_id_of(partition) != letter.topic_id:
        return False
    key_hash = hash_of_record(letter.key, letter.offset, running.plan.settings.nulls_first)
    before, after = running.plan.states[partition], judged.states[partition]
    return not before.piece_of(key_hash).is_done(letter.offset) and after.piece_of(
        key_hash
    ).is_done(letter.offset)


def letters_of(running: BatchRun) -> list[Letter]:
    """A dead letter for each record and each timer that the batch gave up. Raises UNSUITABLE_FRAME
    where the batch has other keys than its records."""
    timers = timer_letters(running.plan, running.failed_timers, running.now_ms)
    return [*_of_records(running), *timers]


def _of_records(running: BatchRun) -> list[DeadLetter]:
    given_up = running.judged.dead
    dead = {partition: {h.offset: h for h in each} for partition, each in given_up.items()}
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
        for topic, number, offset, text, frames, record in running.reported(
            {"outcome": OUTCOME}, offsets
        )["outcome"]
    }


def _read(batch: DataFrame, missing: Mapping[TopicPartition, Sequence[int]]) -> dict[Place, Record]:
    """Dead records as the batch has them."""
    given = batch.columns

    def column(name: str) -> Column:
        name = raw_column(name, given)
        return F.col(name) if name in given else F.lit(None)

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
    planned = running.plan.planned
    place = (partition, pending_record.offset)
    text, frames, record = kept.get(place, _NONE)
    if record is None:
        record = read.get(place, {})
    text = running.told.errors.get(partition, {}).get(pending_record.offset) or text
    letter = letter_of(
        planned,
        planned.mark.source_id,
        running.plan.commits.group,
        place,
        record,
        error=text or _TEXTS.get(pending_record.cause, ""),
        frames=tuple(frames),
        cause=pending_record.cause,
        attempts=pending_record.deliveries,
        first_at_ms=pending_record.since_ms,
        last_at_ms=running.now_ms,
    )
    key_hash = hash_of_record(letter.key, letter.offset, running.plan.settings.nulls_first)
    if place in read and key_hash != pending_record.key_hash:
        # A replay would look for it among the records of another key.
        text = "column 'key' of the batch does not have the key of the record"
        raise error("UNSUITABLE_FRAME", text, partition=partition, offset=letter.offset)
    return letter


_TEXTS: Final = {Cause.UNMENTIONED: "the job said nothing of it"}
