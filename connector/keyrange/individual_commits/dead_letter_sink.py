"""Records that were given up: the record itself, its error, and where both are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from keyrange.individual_commits.batch_plan import BatchPlan
from keyrange.individual_commits.batch_run import BatchRun
from keyrange.individual_commits.collecting import rows_of
from keyrange.individual_commits.model.state import PendingRecord
from keyrange.individual_commits.model.state_after_batch import Outcome
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import HIDDEN

if TYPE_CHECKING:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, DeadLetters

_RECORD: Final = ("key", "value", "timestamp", "headers")
RecordRows = dict[TopicPartition, dict[int, Row]]


class WriteDeadLetters(Protocol):
    """Where dead letters go."""

    def append(
        self,
        options: SourceOptions,
        plan: BatchPlan,
        letters: Sequence[DeadLetter],
        spark: SparkSession,
    ) -> None:
        """To the table, once for each batch, before the batch is committed."""
        ...

    def send(self, options: SourceOptions, letters: Sequence[DeadLetter]) -> None:
        """To the topic, at least once, after it was."""
        ...

    def maintain(self) -> None: ...


class DeadLetterSink:
    """The dead letter table, and the topic where one is named. Opened when something is dead."""

    def __init__(self) -> None:
        self._table: DeadLetters | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": None}

    def append(
        self,
        options: SourceOptions,
        plan: BatchPlan,
        letters: Sequence[DeadLetter],
        spark: SparkSession,
    ) -> None:
        if not letters:
            return
        if self._table is None:
            from keyrange.individual_commits.table.delta_spark import open_writable_dead_letters

            self._table = open_writable_dead_letters(options.commits, spark)
        mark = plan.planned.mark
        now_ms = max(letter.last_at_ms for letter in letters)
        self._table.append(mark.source_id, plan.planned.batch_id, letters, now_ms)

    def send(self, options: SourceOptions, letters: Sequence[DeadLetter]) -> None:
        if letters and options.commits.dead_letter_topic:
            from keyrange.individual_commits.table.dead_letter_topic import send_dead_letters

            send_dead_letters(options.client, options.commits.dead_letter_topic, letters)

    def maintain(self) -> None:
        if self._table is not None:
            self._table.maintain()


def letters_of(running: BatchRun, judged: Mapping[TopicPartition, Outcome]) -> list[DeadLetter]:
    """A dead letter for each record that the batch gave up."""
    dead = {partition: {h.offset: h for h in each.dead} for partition, each in judged.items()}
    dead = {partition: pending for partition, pending in dead.items() if pending}
    if not dead:
        return []
    kept = _kept(running.verdict_rows, dead)
    # What a job rejected by a DataFrame is not in the verdict as it was read.
    missing = {
        partition: [offset for offset in pending if not _is_whole(kept, partition, offset)]
        for partition, pending in dead.items()
    }
    read = {} if running.is_worked_on else _read(running.batch, missing)
    return [
        _letter(running, partition, pending_record, kept, read)
        for partition, pending in sorted(dead.items())
        for _, pending_record in sorted(pending.items())
    ]


def _kept(
    rows: DataFrame | None, dead: Mapping[TopicPartition, Mapping[int, PendingRecord]]
) -> RecordRows:
    """What the verdict holds of dead records."""
    if rows is None:
        return {}
    outcome = F.col(f"{HIDDEN}.outcome")
    record = F.col(f"{HIDDEN}.outcome.record")
    frame = rows.where(outcome.cause != int(Cause.HELD_BACK)).select(
        outcome.topic.alias("topic"),
        outcome.partition.alias("partition"),
        outcome.offset.alias("offset"),
        outcome.error.alias("error"),
        record.isNotNull().alias("is_whole"),
        record.key.alias("key"),
        record.value.alias("value"),
        F.unix_millis(record.timestamp).alias("timestamp_ms"),
        record.headers.alias("headers"),
    )
    return _by_record(rows_of(frame, dead))


def _is_whole(kept: RecordRows, partition: TopicPartition, offset: int) -> bool:
    row = kept.get(partition, {}).get(offset)
    return row is not None and bool(row.is_whole)


def _read(batch: DataFrame, missing: Mapping[TopicPartition, Sequence[int]]) -> RecordRows:
    """Dead records as the batch has them."""
    columns = [F.col(name) for name in ("topic", "partition", "offset")]
    for name in _RECORD:
        if name not in batch.columns:
            columns.append(F.lit(None).alias("timestamp_ms" if name == "timestamp" else name))
        elif name == "timestamp":
            columns.append(F.unix_millis(name).alias("timestamp_ms"))
        else:
            columns.append(F.col(name))
    return _by_record(rows_of(batch.select(*columns), missing))


def _by_record(rows: Iterable[Row]) -> RecordRows:
    found: RecordRows = {}
    for row in rows:
        found.setdefault(TopicPartition(row.topic, row.partition), {})[row.offset] = row
    return found


def _letter(
    running: BatchRun,
    partition: TopicPartition,
    pending_record: PendingRecord,
    kept: RecordRows,
    read: RecordRows,
) -> DeadLetter:
    from keyrange.individual_commits.table.dead_letters import DeadLetter

    plan, planned = running.plan, running.plan.planned
    row = kept.get(partition, {}).get(pending_record.offset)
    record = row if row is not None and row.is_whole else None
    if record is None:
        record = read.get(partition, {}).get(pending_record.offset)
    text = running.told().errors.get(partition, {}).get(pending_record.offset)
    if text is None:
        text = row.error if row is not None else _TEXTS.get(pending_record.cause, "")
    return DeadLetter(
        group=plan.commits.group,
        source_id=planned.mark.source_id,
        query_id=planned.query_id,
        batch_id=planned.batch_id,
        topic=partition.topic,
        topic_id=planned.end.topic_ids.get(partition.topic, ""),
        partition=partition.partition,
        offset=pending_record.offset,
        key=_bytes(record, "key"),
        value=_bytes(record, "value"),
        headers=tuple((each.key, _bytes(each, "value")) for each in _headers(record)),
        timestamp_ms=(record.timestamp_ms or 0) if record is not None else 0,
        error=text or "",
        cause=pending_record.cause,
        attempts=pending_record.deliveries,
        first_at_ms=pending_record.since_ms,
        last_at_ms=running.now_ms,
    )


_TEXTS: Final = {Cause.UNMENTIONED: "the job said nothing of it"}


def _bytes(row: Row | None, name: str) -> bytes | None:
    """A column as it came from Kafka, or as text that the query has made of it. What it has made
    into anything else is not the record's any more."""
    value = getattr(row, name) if row is not None else None
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None


def _headers(row: Row | None) -> Sequence[Row]:
    return (row.headers or ()) if row is not None else ()
