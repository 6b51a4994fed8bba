"""How a job's table is cached in the process that writes its log."""

from __future__ import annotations

import copy
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from keyrange.jobs.batch_writer import JobTables
from keyrange.jobs.definition import JobDefinition
from keyrange.storage.data_files import DataFileWriter
from keyrange.work.model.output_table import OutputTable

SCHEMA = StructType().add("at", "long")


def append(table: JobTables, batch_id: int) -> None:
    sink = table.sink(table.definition.tables[0])
    sink.prepare()
    writer = DataFileWriter(sink.uri, pa.schema([("at", pa.int64())]))
    writer.add(pa.record_batch({"at": [batch_id]}))
    sink.append(writer.finish(), "app", batch_id, check_files=False)


def test_it_stays_open_over_batches_and_another_process_opens_it(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table = JobTables(
        JobDefinition((OutputTable(path, SCHEMA.json()),), "", "record", ("value",)), {}
    )
    append(table, 0)
    cached = table._logs[""].table
    append(table, 1)
    assert table._logs[""].table is cached
    append(copy.copy(table), 2)
    append(table, 2)
    append(table, 3)
    assert sorted(DeltaTable(path).to_pyarrow_table().column("at").to_pylist()) == [0, 1, 2, 3]
