"""The most that a Python source can reach: ready-made batches, no broker, no decoding.

The batches have the columns, types and sizes of the records that the sources read. One batch is
made and handed over again and again: what is left is Spark's hand-over from Python to the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.topics import KEY_BYTES
from keyrange.model.columns import USUAL
from keyrange.source.schema import source_schema
from keyrange.wire.columns import arrow_schema


class CeilingDataSource(DataSource):
    """Options: rows (of a task), tasks, batchRows, valueBytes."""

    @classmethod
    def name(cls) -> str:
        return "keyrange_bench_ceiling"

    def schema(self) -> StructType:
        return source_schema(USUAL)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        # Spark's options are not case-sensitive, but a plain dictionary of them is.
        return _Reader({name.lower(): int(value) for name, value in self.options.items()})


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, int]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._options["tasks"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows, batch_rows = self._options["rows"], self._options["batchrows"]
        batch = ready_made(batch_rows, self._options["valuebytes"], partition.value)
        for at in range(0, rows, batch_rows):
            yield batch.slice(0, min(batch_rows, rows - at))


def ready_made(rows: int, value_bytes: int, partition: int) -> pa.RecordBatch:
    """A batch of records with random letters: the hand-over does not look at them."""
    schema = arrow_schema(USUAL)
    columns = {
        "key": _binary(rows, KEY_BYTES),
        "value": _binary(rows, value_bytes),
        "topic": pa.repeat(pa.scalar("ceiling-00000000"), rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "offset": pa.array(np.arange(rows)),
        "timestamp": pa.array(np.arange(rows), schema.field("timestamp").type),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _binary(rows: int, width: int) -> pa.Array:
    data = np.random.default_rng(1).integers(97, 123, rows * width, np.uint8)
    ends = np.arange(0, rows * width + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)
