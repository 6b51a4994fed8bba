"""A table with keys, and rows that are to be merged into it, without Kafka and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from deltalake import DeltaTable

from keyrange.storage.data_files import DataFile
from keyrange.storage.directory import Directory
from keyrange.storage.merge_by_file import FileMerger
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import partition_columns
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.sink_table import SinkTable
from keyrange.storage.staged import Staged, StagedWriter
from keyrange.storage.write_by_spark import SparkWriter
from keyrange.work.outcome_rows import changed_rows
from keyrange.work.staged_rows import StagedRows

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
# The text of a row that leaves column text as it is.
KEPT = "what a source writes for it"
_NAMES = pa.list_(pa.field("element", pa.string()))
FORM = {"fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]}


class KeyedTable:
    """A table with keys, and a place for rows that are to be merged into it."""

    merger: StagedWriter = FileMerger()

    def __init__(self, home: Path, keys: tuple[str, ...] = ("id",), by: str = "") -> None:
        self.table, self.staging, self.keys = home / "t", home / "s", keys
        self.partition_by = partition_columns([by] if by else [])

    def sink(self, schema: pa.Schema = SCHEMA, **given: Any) -> SinkTable:
        sink = SinkTable(str(self.table), schema, {}, self.partition_by, keys=self.keys, **given)
        sink.prepare(by=self.merger.rules)
        return sink

    def staged(self, *rows: tuple[int, str | None], files: int = 1, at: int = 0) -> Staged:
        """Rows of (id, text), at one offset after the other; without a text the id is deleted."""
        found: list[DataFile] = []
        for file in range(files):
            own = [(n, *row) for n, row in enumerate(rows) if n % files == file]
            writer = self.writer(f"plan-{file}")
            ids, texts = [id for _, id, _ in own], [text for *_, text in own]
            output = pa.record_batch({"id": ids, "text": texts}, schema=SCHEMA)
            writer.add(changed_rows(output, changes([at + n for n, *_ in own], texts)))
            found += writer.finish()
        return Staged(str(self.staging), found, self.keys, FORM, self.partition_by)

    def staged_as(self, output: pa.RecordBatch, kinds: list[str]) -> Staged:
        """Rows of other columns, of `kinds` in Spark's JSON."""
        create = Directory(f"{self.staging}/plan").create
        writer = StagedRows(create, "plan", output.schema, self.partition_by, self.keys)
        count = output.num_rows
        writer.add(changed_rows(output, changes(list(range(count)), ["said"] * count)))
        named = zip(output.schema.names, kinds, strict=True)
        form = {"fields": [{"name": name, "type": kind} for name, kind in named]}
        return Staged(str(self.staging), writer.finish(), self.keys, form, self.partition_by)

    def writer(self, attempt: str, **given: Any) -> StagedRows:
        create = Directory(f"{self.staging}/{attempt}").create
        return StagedRows(create, attempt, SCHEMA, self.partition_by, self.keys, **given)

    def merge_too_late(self, batch_id: int, staged: Staged, driver: Driver, by: Driver) -> None:
        """By Spark, whose `driver` is stopped `by` another between its look at the table and the
        write. Raises COMMITS_FENCED."""
        whole = SparkWriter.write

        def late(writer: SparkWriter, *given: Any) -> Any:
            self.sink().stop_others(by)
            return whole(writer, *given)

        with patch.object(SparkWriter, "write", late):
            self.merge(batch_id, staged, driver=driver)

    def merge(
        self, batch_id: int, staged: Staged, sink: SinkTable | None = None, **given: Any
    ) -> Merged:
        sink = sink or self.sink()
        return sink.write(staged, [self.merger], "app", batch_id, True, **given)

    def rows(self) -> dict[int, str | None]:
        rows = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        found = {row["id"]: row["text"] for row in rows}
        assert len(found) == len(rows), rows
        return found


def changes(offsets: list[int], texts: list[str | None]) -> dict[str, pa.Array]:
    count = len(offsets)
    return {
        "topic": pa.array(["t"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "row": pa.array([0] * count, pa.int64()),
        "timestamp_ms": pa.array([0] * count, pa.int64()),
        "deleted": pa.array([text is None for text in texts]),
        "kept": pa.array([["text"] if text == KEPT else None for text in texts], _NAMES),
    }
