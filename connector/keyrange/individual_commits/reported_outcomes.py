"""What was said of a batch's records, brought to the driver: pending records, and never what is
done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.individual_commits.model.verdict_manifest import Found
from keyrange.model.columns import IDENTIFYING, PLACE
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.work.appended_files import HANDED_ON
from keyrange.work.model.outcome import Cause, RecordOutcome
from keyrange.work.outcome_rows import HIDDEN, HIDDEN_TYPE
from keyrange.work.reported_offsets import (
    BLOCKS_DDL,
    OFFSETS_DDL,
    blocks_of,
    rows_at,
    subtract_blocks,
)
from keyrange.work.user_errors import ERROR_BYTES_MAX

# What is asked of the files of a verdict.
REPORTED: Final = {
    "outcome": ("topic", "partition", "offset", "key_hash", "cause", "late"),
    "handed_back": ("topic", "partition", "from_hash", "last_hash", "from_offset"),
    "done": ("topic", "partition", "records"),
    "tombstones": ("topic", "partition", "records"),
    "worked_on": ("topic", "partition", "from_hash", "last_hash"),
}


_NO_SESSION: Final = "SESSION_OR_CONTEXT_NOT_EXISTS"
HIDDEN_SPARK: Final = from_arrow_type(HIDDEN_TYPE)


@dataclass
class ReportedResults:
    """What was said of a batch, by partition. `errors` are those that `reject` was given;
    `tombstones`: how many of the records that are done have no value, where values are read."""

    not_done: dict[TopicPartition, dict[int, RecordOutcome]] = field(default_factory=dict)
    handed_back: dict[TopicPartition, list[tuple[KeyRange, int]]] = field(default_factory=dict)
    done: dict[TopicPartition, int] = field(default_factory=dict)
    tombstones: int = 0
    errors: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)

    def add(self, partition: TopicPartition, each: RecordOutcome) -> None:
        """What was said first holds."""
        self.not_done.setdefault(partition, {}).setdefault(each.offset, each)

    def verdicts(self) -> dict[TopicPartition, PartitionVerdict]:
        """Of the partitions of which something was said. What is handed back stands above what was
        said of single records of it."""
        found: dict[TopicPartition, PartitionVerdict] = {}
        for partition in self.not_done.keys() | self.handed_back:
            back = self.handed_back.get(partition, [])
            kept = (
                each
                for each in self.not_done.get(partition, {}).values()
                if not any(span.contains(each.key_hash) and each.offset >= at for span, at in back)
            )
            found[partition] = PartitionVerdict(tuple(sorted(kept)), tuple(back))
        return found


def handed_on(rows: DataFrame) -> Found:
    """What tasks have handed to Spark that write files themselves."""
    found: Found = {member: [] for member in HANDED_ON}
    for row in rows.select(HIDDEN).collect():
        for member, names in HANDED_ON.items():
            said = row[HIDDEN][member]
            if said is not None:
                found[member].append(tuple(said[name] for name in names))
    return found


def reported_in(found: Found) -> ReportedResults:
    """What rows with the fields of `REPORTED` say. Raises RECORDS_OUT_OF_ORDER where two tasks had
    records of one key range, which the source gives to one."""
    for before, after in pairwise(sorted(found["worked_on"])):
        if before[:2] == after[:2] and after[2] <= before[3]:
            text = "records of one key range come in two tasks"
            raise error("RECORDS_OUT_OF_ORDER", text, partition=TopicPartition(*after[:2]))
    reported = ReportedResults()
    for topic, number, offset, key_hash, cause, late in found["outcome"]:
        each = RecordOutcome(offset, key_hash, Cause(cause), late=bool(late))
        reported.add(TopicPartition(topic, number), each)
    for topic, number, from_hash, last_hash, from_offset in found["handed_back"]:
        back = reported.handed_back.setdefault(TopicPartition(topic, number), [])
        back.append((KeyRange(from_hash, last_hash + 1), from_offset))
    for topic, number, records in found["done"]:
        partition = TopicPartition(topic, number)
        reported.done[partition] = reported.done.get(partition, 0) + records
    reported.tombstones = sum(records for _, _, records in found["tombstones"])
    return reported


def count_output(verdict: DataFrame, told: ReportedResults) -> None:
    """How many records are done, where the rows of a verdict do not say so themselves."""
    output = verdict.where(is_output())
    for row in output.groupBy("topic", "partition").count().collect():
        partition = TopicPartition(row["topic"], row["partition"])
        told.done[partition] = max(row["count"] - len(told.not_done.get(partition, ())), 0)


def is_output() -> Any:
    """Whether a row of a verdict is output."""
    return F.col(HIDDEN).isNull() | F.col(f"{HIDDEN}.location").isNotNull()


def rejected_in(frame: DataFrame, error_column: str | None) -> list[Row]:
    """Rows of topic, partition, offset, place and error, once for each record."""
    text = F.lit("rejected") if error_column is None else F.col(error_column).cast("string")
    return (
        frame.select(
            *PLACE,
            F.col("keyHash").alias("key_hash"),
            F.substring(F.coalesce(text, F.lit("rejected")), 1, ERROR_BYTES_MAX).alias("error"),
        )
        .dropDuplicates([*PLACE])
        .collect()
    )


def schema_of(schema: str | StructType) -> StructType:
    """The columns that are given, in DDL or as they are. Raises INVALID_OPTIONS."""
    columns = schema if isinstance(schema, StructType) else _of_ddl(schema)
    if not_null := [a.name for a, b in zip(columns, columns.toNullable(), strict=True) if a != b]:
        text = f"column {not_null[0]!r} of schema is not nullable, and rows are not held to it"
        raise invalid_options(f"{text}: leave NOT NULL out")
    return columns


def _of_ddl(schema: object) -> StructType:
    if not isinstance(schema, str):
        raise invalid_options(f"schema must be DDL or a StructType, and is {schema!r}"[:200])
    try:
        # Not every line of DDL is one of columns.
        return StructType(list(StructType.fromDDL(schema)))  # type: ignore[call-overload]
    except (PySparkException, TypeError) as failure:
        if isinstance(failure, PySparkException) and failure.getCondition() == _NO_SESSION:
            text = "Spark reads a schema in DDL: make the SparkSession first, or give a StructType"
            raise invalid_options(text) from None
        reason = str(failure).strip().partition("\n")[0]
        raise invalid_options(f"schema {schema[:200]!r} is no DDL of columns: {reason}") from None


def check_columns(frame: DataFrame, call: str, names: Iterable[str] = IDENTIFYING) -> None:
    """Raises UNSUITABLE_FRAME."""
    missing = sorted(set(names) - set(frame.columns))
    if missing:
        raise error(
            "UNSUITABLE_FRAME",
            f"what {call} was given has no column {missing[0]!r}; it has "
            f"{', '.join(frame.columns)[:500]}",
        )
    if HIDDEN in frame.columns:
        raise error("UNSUITABLE_FRAME", f"column {HIDDEN!r} is keyrange's own")


def unmentioned(
    batch: DataFrame, acknowledged: Sequence[DataFrame], verdict: DataFrame | None
) -> dict[TopicPartition, list[RecordOutcome]]:
    """The records of a batch that nothing was said of.

    Executors take what was said from what was delivered, block by block; the batch is read once
    more for that, and another time for the places of what is left, where something is.
    """
    blocks = batch.select(*PLACE).mapInArrow(blocks_of(True), BLOCKS_DDL)
    for each in acknowledged:
        said = each.select(*PLACE).mapInArrow(blocks_of(False), BLOCKS_DDL)
        blocks = blocks.union(said)
    if verdict is not None:
        block = F.col(f"{HIDDEN}.mentioned")
        said = verdict.where(block.isNotNull()).select(
            block.topic.alias("topic"),
            block.partition.alias("partition"),
            block.block.alias("block"),
            F.lit(False).alias("delivered"),
            block.bits.alias("bits"),
        )
        blocks = blocks.union(said)
    grouped = blocks.groupBy("topic", "partition", "block")
    left: dict[TopicPartition, list[int]] = {}
    for row in grouped.applyInArrow(subtract_blocks, OFFSETS_DDL).collect():
        left.setdefault(TopicPartition(row.topic, row.partition), []).append(row.offset)
    found: dict[TopicPartition, list[RecordOutcome]] = {}
    for row in rows_of(batch.select(*IDENTIFYING), left):
        said_of = found.setdefault(TopicPartition(row.topic, row.partition), [])
        said_of.append(RecordOutcome(row.offset, row.keyHash, Cause.UNMENTIONED))
    return found


def rows_of(frame: DataFrame, wanted: Mapping[TopicPartition, Iterable[int]]) -> list[Row]:
    """The rows at some offsets; without any nothing is read."""
    if not any(wanted.values()):
        return []
    return frame.mapInArrow(rows_at(wanted), frame.schema).collect()
