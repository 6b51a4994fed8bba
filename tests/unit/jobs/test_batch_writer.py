"""How a job's table is cached in the process that writes its log."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.dead_letter_sink import LettersOfWholeBatches
from keyrange.individual_commits.model.verdict_manifest import Manifest, ManifestTable
from keyrange.jobs.batch_writer import JobTables, WriteWhole
from keyrange.jobs.definition import JobDefinition
from keyrange.jobs.first_records import warnings_of
from keyrange.keyed_state.variables import Variable
from keyrange.options import parse_options
from keyrange.storage.data_files import DataFileWriter
from keyrange.work.job_time import JobTime
from keyrange.work.model.output_table import OutputTable
from samples.checkpoints import commit_batch, make_checkpoint

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


def test_who_is_slower_than_another_run_of_the_query_says_so(tmp_path: Path) -> None:
    """The manifests of a batch that is finished are gone, as if it had been passed over."""
    home = make_checkpoint(tmp_path / "c")
    for batch_id in range(3):
        offset = {"@keyrange": {"version": 1, "sourceId": "source-1"}, "t": {"0": batch_id}}
        lines = ["v1", json.dumps({"batchTimestampMs": 1}), json.dumps(offset)]
        (home / "offsets" / str(batch_id)).write_text("\n".join(lines) + "\n")
        commit_batch(home, batch_id)
    output = OutputTable(str(tmp_path / "table"), SCHEMA.json())
    tables = JobTables(JobDefinition((output,), "", "record", ("value",)), {})
    letters = LettersOfWholeBatches(
        parse_options({"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"})
    )
    with pytest.raises(KeyrangeError, match=r"\[CONCURRENT_QUERY\].* batch 1 "):
        WriteWhole(tables, str(home), letters)(cast(DataFrame, None), 1)


def test_a_function_that_makes_no_rows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    definition = JobDefinition((OutputTable("/t", SCHEMA.json()),), "", "record", ("value",))
    nothing, done = Manifest(3), [("t", 0, 1000), ("t", 1, 234)]
    some = Manifest(4, rows={"done": done, "file": [("a.parquet",)]})
    none = Manifest(5, rows={"done": done})
    for batches, count in (([nothing, none, none], 1), ([some, none], 0)):
        tables = JobTables(definition, {})
        caplog.clear()
        for each in batches:
            tables.finish(each)
        assert len(caplog.messages) == count
        assert all("batch 5: 1,234 records are done, and no row" in x for x in caplog.messages)
    # What is there for the state of its keys need not have rows.
    tables = JobTables(replace(definition, state=(Variable("n", "value", "{}"),)), {})
    tables.finish(none)
    assert caplog.messages == []


def test_a_batch_without_records_says_nothing_of_the_columns_of_rows(tmp_path: Path) -> None:
    """Its tasks do not tell by which newer ones they would have read."""
    output = OutputTable(str(tmp_path / "table"), SCHEMA.json())
    tables = JobTables(JobDefinition((output,), "", "record", ("value",)), {})
    newer = StructType().add("at", "long").add("note", "string")
    file = ("a.parquet", 1, 1, "", (), "")
    for schema, files in ((newer, [file]), (SCHEMA, [])):
        told = ManifestTable(output.uri, "id", json.loads(schema.json()))
        tables.finish(Manifest(3, tables={"": told}, rows={"file": files}))
    assert tables.sink(output)._schema.names == ["at", "note"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("t", 0, 1_790_000_000 * 1000, 0)], "before March 1973.* look like seconds"),
        ([("t", 0, 1_790_000_000_000_000, 0)], ""),
        ([], "of 7 records none has an event time that counts"),
    ],
)
def test_event_times_in_another_unit_are_told(
    rows: list[tuple[str, int, int, int]], said: str
) -> None:
    definition = JobDefinition(
        *((OutputTable("/t", SCHEMA.json()),), "", "record", ("value",)),
        state=(Variable("n", "value", "{}"),),
        time=JobTime(("value", "at")),
    )
    found = [
        *warnings_of(Manifest(0, rows={"done": [("t", 0, 7)], "event_time": rows}), definition)
    ]
    assert len(found) == bool(said)
    assert all(re.search(said, each) for each in found)
    by_clock = replace(definition, time=JobTime())
    assert [*warnings_of(Manifest(0, rows={"done": [("t", 0, 7)]}), by_clock)] == []
