"""The little of Spark's DataFrame that `keyrange.each_batch` uses, without a JVM: rows are Arrow
batches, a partition is a function that makes them, and a job runs the partitions as tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row

Part = Callable[[], Iterator[pa.RecordBatch]]
# Runs partitions as a job's tasks; returns what each has made.
Run = Callable[[Sequence[Part]], list[list[pa.RecordBatch]]]


class Column:
    """An expression over the columns of a batch."""

    def __init__(self, of: Callable[[pa.RecordBatch], Any], name: str = "") -> None:
        self.of, self.name = of, name

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return Column(lambda rows: pc.struct_field(self.of(rows), name), name)

    def __or__(self, other: Column) -> Column:
        return Column(lambda rows: pc.or_(self.of(rows), other.of(rows)))

    def isNull(self) -> Column:
        return Column(lambda rows: pc.is_null(self.of(rows)))

    def isNotNull(self) -> Column:
        return Column(lambda rows: pc.is_valid(self.of(rows)))

    def alias(self, name: str) -> Column:
        return Column(self.of, name)


def col(name: str) -> Column:
    first, *inner = name.split(".")
    found = Column(lambda rows: rows.column(first), first)
    for each in inner:
        found = getattr(found, each)
    return found


def lit(value: Any) -> Column:
    return Column(lambda rows: pa.array([value] * rows.num_rows))


def unix_millis(column: Column | str) -> Column:
    source = col(column) if isinstance(column, str) else column

    def of(rows: pa.RecordBatch) -> Any:
        return pc.divide(source.of(rows).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)

    return Column(of)


@contextmanager
def functions() -> Iterator[None]:
    """`pyspark.sql.functions` make these columns meanwhile."""
    with ExitStack() as stack:
        for each in (col, lit, unix_millis):
            stack.enter_context(patch(f"pyspark.sql.functions.{each.__name__}", each))
        yield


class Session:
    """What stands for Spark's session."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def read(self) -> Session:
        return self

    def schema(self, _: Any) -> Session:
        return self

    def options(self, **_: str) -> Session:
        return self

    def parquet(self, *paths: str) -> Frame:
        return Frame(self, [lambda path=path: _rows_in(path) for path in paths], [])


class Frame:
    """A DataFrame; `names` are its columns."""

    def __init__(self, session: Session, parts: Sequence[Part], names: Sequence[str]) -> None:
        self.sparkSession = session
        self.columns = list(names)
        self._parts = list(parts)

    @property
    def schema(self) -> Frame:
        return self

    @property
    def write(self) -> Frame:
        return self

    def _mapped(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Frame:
        parts = [lambda part=part: map(change, part()) for part in self._parts]
        return Frame(self.sparkSession, parts, self.columns)

    def where(self, condition: Column) -> Frame:
        return self._mapped(lambda rows: rows.filter(condition.of(rows)))

    def select(self, *wanted: Column | str) -> Frame:
        columns = [col(each) if isinstance(each, str) else each for each in wanted]
        names = [each.name for each in columns]

        def change(rows: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([each.of(rows) for each in columns], names=names)

        found = self._mapped(change)
        found.columns = names
        return found

    def mapInArrow(
        self,
        function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: Any,
    ) -> Frame:
        parts = [lambda part=part: function(part()) for part in self._parts]
        return Frame(self.sparkSession, parts, getattr(schema, "names", self.columns))

    def collect(self) -> list[Row]:
        made = self.sparkSession.run(self._parts)
        return [_row(each) for part in made for rows in part for each in rows.to_pylist()]

    def isEmpty(self) -> bool:
        return not self.collect()

    def parquet(self, path: str) -> None:
        """Write one file for each partition that has rows."""
        made = self.sparkSession.run(self._parts)
        Path(path).mkdir(parents=True)
        for number, batches in enumerate(made):
            if batches:
                table = pa.Table.from_batches(batches)
                pq.write_table(table, f"{path}/part-{number:05d}.parquet", compression="none")


def _rows_in(path: str) -> Iterator[pa.RecordBatch]:
    return iter(pq.ParquetFile(path).read(use_threads=False).to_batches())


def _row(values: dict[str, Any]) -> Row:
    headers = values.get("headers")
    if headers:
        values = {**values, "headers": [Row(**each) for each in headers]}
    return Row(**values)
