"""The commit table written through Spark, where delta-rs cannot write: a `Store` by delta-spark.

For tables that a catalogue owns, and stores that only the cluster can reach. A commit costs one to
some seconds. What is written may be read by delta-rs, and the other way round.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit_table_protocol import CommitTable
from keyrange.individual_commits.table import commit_table, dead_letters
from keyrange.individual_commits.table.commit_table import DeltaCommitTable, open_commit_table
from keyrange.individual_commits.table.dead_letters import DeadLetters, open_dead_letters
from keyrange.options.commits import CommitOptions
from keyrange.storage.store_failures import read_fault, writing_fault
from keyrange.storage.table_store import Bounds, Conflict, Layout, Transaction

_LOG = logging.getLogger(__name__)

# Between two compactions; each is a job of some seconds.
_COMPACT_EVERY = 200
_MISSING = ("TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")
_NOT_DELTA = ("DELTA_TABLE_NOT_FOUND", "DELTA_TABLE_ONLY_OPERATION")
_CONFLICTS = (
    *("CONCURRENT_TRANSACTION", "ConcurrentTransactionException"),
    *("METADATA_CHANGED", "MetadataChangedException"),
)
_TIDYING = {
    # What Delta itself keeps small the commits in, instead of rewriting the history with each run.
    "spark.databricks.delta.optimize.minFileSize": str(4 * 1024 * 1024),
    "spark.databricks.delta.optimize.maxFileSize": str(8 * 1024 * 1024),
    # VACUUM lists even a single directory by as many tasks as this says: 10,000 by default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def open_writable_commit_table(
    options: CommitOptions, source_id: str, spark: SparkSession
) -> CommitTable:
    """The commits of a source, written by what option commitTable.writer says."""
    if options.writer == "delta-spark":
        store = SparkStore(spark, options.table, commit_table.LAYOUT)
        return DeltaCommitTable(store, source_id)
    return open_commit_table(options, source_id)


def open_writable_dead_letters(options: CommitOptions, spark: SparkSession) -> DeadLetters:
    """The dead letters, written by what option commitTable.writer says."""
    if options.writer == "delta-spark":
        return DeadLetters(SparkStore(spark, options.dead_letter_table, dead_letters.LAYOUT))
    return open_dead_letters(options)


class SparkStore:
    """One table by its path, or by its name in a catalogue: what has neither a slash nor a colon
    is a name."""

    # What Delta has seen under an application id it leaves out, and says nothing.
    skips_in_silence: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, uri: str, layout: Layout) -> None:
        self._spark = spark
        self._uri = uri
        self._layout = layout
        self._conditions = layout.conditions
        by_name = not any(each in uri for each in "/:\\")
        self._name = (
            ".".join(_quoted(part) for part in uri.split("."))
            if by_name
            else f"delta.{_quoted(uri)}"
        )
        self._table_id = ""
        self._exists = False
        self._written = 0

    @property
    def uri(self) -> str:
        return self._uri

    def refresh(self) -> bool:
        with self._reading():
            detail = self._detail()
            self._exists = detail is not None
            if detail is None:
                if self._table_id:
                    raise error(self._conditions.gone, "the table was deleted", table=self._uri)
                return False
            columns = to_arrow_schema(self._spark.read.table(self._name).schema, timezone="UTC")
            self._layout.check(detail["properties"], columns, self._uri)
            if self._table_id and self._table_id != detail["id"]:
                message = "the table was deleted, and another one made in its place"
                raise error(self._conditions.gone, message, table=self._uri)
            self._table_id = detail["id"]
            return True

    def version_of(self, app_id: str) -> int | None:  # noqa: ARG002
        """Spark shows none: the rows themselves say what was written."""
        return None

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        names = list(columns or self._layout.schema.names)
        schema = pa.schema([self._layout.schema.field(name) for name in names])
        if not self._exists:
            return schema.empty_table()
        with self._reading():
            return self._rows(bounds).select(*map(_quoted, names)).toArrow().cast(schema)

    def greatest(self, column: str, bounds: Bounds) -> Any:
        if not self._exists:
            return None
        with self._reading():
            return self._rows(bounds).agg(F.max(_quoted(column))).collect()[0][0]

    def write(
        self, rows: pa.Table, transactions: Sequence[Transaction], note: Mapping[str, str]
    ) -> None:
        if not self._exists and not self.refresh():
            self._create()
        try:
            frame = self._spark.createDataFrame(rows).coalesce(1)
            writer = frame.write.format("delta").mode("append")
            writer = writer.option("userMetadata", str(dict(note)))
            for first in transactions[:1]:
                writer = writer.option("txnAppId", first.app_id)
                writer = writer.option("txnVersion", str(first.version))
            writer.saveAsTable(self._name) if self._is_named else writer.save(self._uri)
        except Exception as failure:
            if any(word in str(failure) for word in _CONFLICTS):
                raise Conflict from None
            raise writing_fault(failure, self._uri, {}, self._conditions) from None
        self._written += 1

    def maintain(self) -> None:
        """Failures are logged and no more, as by delta-rs."""
        if self._written < _COMPACT_EVERY:
            return
        self._written = 0
        try:
            self.tidy_up()
        except Exception as failure:
            _LOG.warning("%s could not be compacted or vacuumed: %s", self._uri, failure)

    def tidy_up(self) -> None:
        """Compact and vacuum at once. Raises `unwritable` of the table's conditions."""
        before = {name: self._spark.conf.get(name, None) for name in _TIDYING}
        try:
            for name, value in _TIDYING.items():
                self._spark.conf.set(name, value)
            self._spark.sql(f"OPTIMIZE {self._name}").collect()
            self._spark.sql(f"VACUUM {self._name}").collect()
        except Exception as failure:
            raise writing_fault(failure, self._uri, {}, self._conditions) from None
        finally:
            for name, was in before.items():
                if was is None:
                    self._spark.conf.unset(name)
                else:
                    self._spark.conf.set(name, was)

    def extent(self) -> tuple[int, int]:
        """How many files the table has, and their bytes."""
        with self._reading():
            detail = self._detail()
            return detail["numFiles"], detail["sizeInBytes"]

    @property
    def _is_named(self) -> bool:
        return not self._name.startswith("delta.`")

    def _detail(self) -> Any:
        """What Delta says of the table; None where there is none."""
        try:
            [detail] = self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()
        except PySparkException as failure:
            text = f"{failure.getCondition()} {failure}"
            if any(word in text for word in _MISSING):
                return None
            if any(word in text for word in _NOT_DELTA):
                message = f"the table is not one of keyrange's {self._layout.kind}"
                raise error("FOREIGN_TABLE", message, table=self._uri) from None
            raise
        if detail["format"] != "delta":
            message = "there are files at the place of the table, and no log of Delta's"
            raise error("FOREIGN_TABLE", message, table=self._uri)
        return detail

    def _create(self) -> None:
        columns = self._spark.createDataFrame(self._layout.schema.empty_table()).schema
        ddl = ", ".join(f"{_quoted(each.name)} {each.dataType.simpleString()}" for each in columns)
        properties = ", ".join(
            f"'{name}' = '{value}'" for name, value in self._layout.properties().items()
        )
        try:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._name} ({ddl}) USING delta "
                f"TBLPROPERTIES ({properties})"
            )
        except Exception as failure:
            # Another writer may have been faster.
            if not self.refresh():
                raise writing_fault(failure, self._uri, {}, self._conditions) from None
            return
        self.refresh()

    def _rows(self, bounds: Bounds) -> DataFrame:
        frame = self._spark.read.table(self._name)
        for name, (least, greatest) in bounds.items():
            column: Column = frame[name]
            if least is not None:
                frame = frame.where(column >= F.lit(least))
            if greatest is not None:
                frame = frame.where(column <= F.lit(greatest))
        return frame

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except KeyrangeError:
            raise
        except Exception as failure:
            raise read_fault(failure, self._uri, {}, self._conditions) from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
