"""What starts the query of a job: Spark's stream writer, without what would aim it elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from keyrange.errors import KeyrangeError, error
from keyrange.observing.short_errors import short_errors

_INSTEAD: Final = {
    "format": "the job writes its Delta table; for another sink read with format('keyrange')",
    "foreach": "give keyrange.job a function, which is called with each record",
    "foreachBatch": "read with format('keyrange') and give foreachBatch keyrange.each_batch",
    "option": "options of the source belong into keyrange.job, those of the table into into()",
    "options": "options of the source belong into keyrange.job, those of the table into into()",
    "partitionBy": "name the columns as partition_by of into()",
    "table": "the table is the first argument of into()",
    "toTable": "the table is the first argument of into(), and start() starts the query",
}

_CALLS: Final = {*_INSTEAD, "start", "trigger", "queryName", "outputMode"}


class WithoutTable:
    """A job that has no table yet: whoever calls for what comes after `into` is told so."""

    def __getattr__(self, name: str) -> NoReturn:
        if name == "writeStream" or (name in _CALLS and hasattr(DataStreamWriter, name)):
            raise _unsupported(name, "a job is started by job.into(table, checkpoint).start()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class TableWriter:
    """Sets the trigger and the name of a job's query, and starts it, as Spark's DataStreamWriter.

    Each of Spark's other calls would send the records elsewhere, while the checkpoint goes on as
    if they were in the table. They raise UNSUPPORTED_WRITER_CALL.
    """

    def __init__(
        self,
        writer: DataStreamWriter,
        written_by: str = "",
        before: Callable[[], object] | None = None,
    ) -> None:
        """`written_by`: who writes the tables, and why. `before`: what is done before the query
        starts."""
        self._writer = writer
        self.written_by = written_by
        self._before = before

    def trigger(self, **interval: Any) -> TableWriter:
        """As Spark's: `processingTime="10 seconds"`, `availableNow=True` or `once=True`."""
        self._writer = self._writer.trigger(**interval)
        return self

    def queryName(self, queryName: str) -> TableWriter:
        self._writer = self._writer.queryName(queryName)
        return self

    def outputMode(self, outputMode: str) -> TableWriter:
        """Only "append" is what a job does."""
        if outputMode != "append":
            raise _unsupported(f"outputMode({outputMode!r})", "the job appends its output")
        return self

    def start(self, *given: Any, **options: Any) -> StreamingQuery:
        """Start the query. It takes no argument: table and checkpoint are those of `into`.

        Its `awaitTermination` raises keyrange's own error (`keyrange.short_errors`).
        """
        if given or options:
            raise _unsupported(
                "start with arguments", "table and checkpoint are the arguments of into()"
            )
        if self._before is not None:
            self._before()
        return short_errors(self._writer.start())

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(DataStreamWriter, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise _unsupported(name, _INSTEAD.get(name, "the job's query has no use for it"))


def _unsupported(call: str, instead: str) -> KeyrangeError:
    return error(
        "UNSUPPORTED_WRITER_CALL", f"{call} is no call for the query of a keyrange.job: {instead}"
    )
