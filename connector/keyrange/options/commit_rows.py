"""The rows of the options about individual commits, and their parsers."""

from __future__ import annotations

from typing import Final

from keyrange.options.option import BOTH, INT32_MAX, INT64_MAX, STREAM, Option
from keyrange.options.parsing import (
    NAME_BYTES_MAX,
    boolean,
    duration_ms,
    group_up_to,
    int_between,
    one_of,
    place,
    size_between,
)
from keyrange.source.model.checkpoint import is_topic_name

# What a hole takes of a state at the most: varints of its gap, place, times and deliveries.
HOLE_BYTES_MAX: Final = 40


def _topic(value: str) -> str:
    if not is_topic_name(value):
        raise ValueError(f"must be the name of a topic, and '{value[:40]}' cannot be one")
    return value


_TIME: Final = "a time, such as 10s; a bare number is ms"

COMMIT_ROWS: Final = (
    Option(
        "commitMode",
        "commit_mode",
        "batch",
        BOTH,
        one_of("batch", "individual"),
        "batch, individual",
        "What is committed. batch: a batch that Spark has finished. individual: the job says of "
        "every record whether it is done, inside foreachBatch(keyrange.each_batch(...)), and what "
        "is not done comes again. The columns topic, partition, offset and keyHash are always "
        "there then. For streams with splitBy=keyRange or partition.",
    ),
    Option(
        "allow.individual.commit",
        "allow_individual",
        None,
        BOTH,
        boolean,
        "true, false",
        "The same as commitMode: true is individual, false is batch.",
    ),
    Option(
        "commitTable",
        "commit_table",
        None,
        STREAM,
        place,
        "an absolute path or a URI; with delta-spark a table's name too",
        "The Delta table that individual commits are kept in. It is made where there is none. What "
        "its object store asks for is given as commitTable.storage.NAME, secrets as env:NAME or "
        "file:PATH.",
    ),
    Option(
        "commitGroup",
        "commit_group",
        None,
        STREAM,
        group_up_to(NAME_BYTES_MAX),
        "a name",
        "The name of the query in the commit table. Default: kafka.group.id, or else default.",
    ),
    Option(
        "commitTable.writer",
        "commit_writer",
        "delta-rs",
        STREAM,
        one_of("delta-rs", "delta-spark"),
        "delta-rs, delta-spark",
        "Who writes the commit table. delta-rs takes some 30 ms a commit. delta-spark takes "
        "seconds, and can write what only Spark can: tables of Unity Catalog.",
    ),
    Option(
        "commitTable.onFreshStart",
        "on_fresh_start",
        "fail",
        STREAM,
        one_of("fail", "resume", "ignore"),
        "fail, resume, ignore",
        "What a query without a checkpoint does where its group has commits already. fail: it is "
        "refused. resume: it goes on from them. ignore: it starts anew where startingOffsets says.",
    ),
    Option(
        "commit.isolation",
        "isolation",
        "immediate",
        STREAM,
        one_of("immediate", "transactional"),
        "immediate, transactional",
        "When finished output reaches the sink. immediate: with its batch. transactional: when "
        "everything before it in its partition is done.",
    ),
    Option(
        "keyOrder",
        "key_order",
        "keep",
        STREAM,
        one_of("keep", "skipAhead"),
        "keep, skipAhead",
        "What becomes of later records of a key while one of it is not done. keep: they wait. "
        "skipAhead: they are worked on.",
    ),
    Option(
        "unmentioned",
        "unmentioned",
        "done",
        STREAM,
        one_of("done", "retry"),
        "done, retry",
        "What a record is that the job said nothing of. done: it was filtered out. retry: it comes "
        "again.",
    ),
    Option(
        "record.timeout",
        "record_timeout_ms",
        "0",
        STREAM,
        duration_ms,
        _TIME,
        "How long a function may work on one record before it is interrupted, and the record "
        "counts as not done. 0: as long as it likes.",
    ),
    Option(
        "batch.time.budget",
        "batch_time_budget_ms",
        "0",
        STREAM,
        duration_ms,
        _TIME,
        "How long a task may work on its records. What is left then is handed back and comes in "
        "the next batch, so that a slow key holds up no others. 0: as long as it takes.",
    ),
    Option(
        "redelivery.backoff",
        "backoff_ms",
        "10s",
        STREAM,
        duration_ms,
        _TIME,
        "How long a record that is not done waits before it comes again; doubled each time.",
    ),
    Option(
        "redelivery.backoff.max",
        "backoff_max_ms",
        "10m",
        STREAM,
        duration_ms,
        _TIME,
        "The longest such wait.",
    ),
    Option(
        "maxDeliveries",
        "deliveries_max",
        "5",
        STREAM,
        int_between(1, INT32_MAX),
        "a number of times",
        "How often a record is worked on before it goes to the dead letters.",
    ),
    Option(
        "deadLetterTable",
        "dead_letter_table",
        None,
        STREAM,
        place,
        "as commitTable",
        "The Delta table of the records that were given up. Default: commitTable with "
        "_dead_letters behind it.",
    ),
    Option(
        "deadLetterTopic",
        "dead_letter_topic",
        None,
        STREAM,
        _topic,
        "a topic",
        "A topic that the records that were given up are written to as well, at least once.",
    ),
    Option(
        "verdictDirectory",
        "verdict_directory",
        None,
        STREAM,
        place,
        "an absolute path or a URI",
        "Where the output of a batch and what was said of its records are kept until the batch is "
        "committed; driver and executors share it. Default: commitTable with _verdicts behind it.",
    ),
    Option(
        "availableNow.redelivery",
        "available_now",
        "leave",
        STREAM,
        one_of("leave", "drain"),
        "leave, drain",
        "What a run with availableNow does with records that wait for their next delivery. leave: "
        "it ends, and says how many. drain: it waits for them, up to "
        "availableNow.redelivery.timeout.",
    ),
    Option(
        "availableNow.redelivery.timeout",
        "available_now_timeout_ms",
        "10m",
        STREAM,
        duration_ms,
        _TIME,
        "How long in all a run with availableNow waits for records that wait.",
    ),
    Option(
        "max.num.ranges.to.commit",
        "range_holes_max",
        "10000",
        STREAM,
        int_between(1, 10_000_000),
        "a number of records",
        "How many records of a key range may be not done. From half of it on the range takes in "
        "less, and at it nothing; others go on.",
    ),
    Option(
        "max.bytes.ranges.to.commit",
        "range_bytes_max",
        "1m",
        STREAM,
        size_between(1024, 2**30),
        "bytes, such as 1m",
        f"The same bound in bytes of what is stored of a key range, {HOLE_BYTES_MAX} a record.",
    ),
    Option(
        "max.range.lag",
        "range_lag_max",
        None,
        STREAM,
        int_between(1, INT64_MAX),
        "a number of offsets",
        "How far a key range may be behind its partition before that takes in nothing new.",
    ),
)
