"""The output of a verdict into the tables of its job: files that are there are named in a table's
log, or their rows are merged into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyrange.formats.schema_document import struct_type
from keyrange.individual_commits import last_batch_results
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.model.verdict_manifest import (
    Manifest,
    ManifestTable,
    check_output,
)
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.merge_by_spark import SparkMerger, has_delta
from keyrange.storage.merging import Merger, Staged
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.sink_history import made_again, note_of
from keyrange.work import appended_files

if TYPE_CHECKING:
    from keyrange.storage.sink_table import SinkTable


@dataclass(frozen=True)
class TableOutput:
    """A table of a job, and the rows for it. `form` is Spark's JSON of their columns, and
    `name_in_spark` what a session calls the place of the table."""

    sink: SinkTable
    form: Mapping[str, Any]
    name_in_spark: str

    def as_told(self) -> ManifestTable:
        """What a manifest is to say of it."""
        sink = self.sink
        return ManifestTable(sink.uri, sink.table_id(), self.form, sink.keys)


@dataclass(frozen=True)
class BatchOutput:
    """The tables of a job by its names for them, and a batch of Spark's that has rows for them.
    `storage`: settings of the object store."""

    tables: Mapping[str, TableOutput]
    batch: Any
    storage: Mapping[str, str]

    def __iter__(self) -> Iterator[SinkTable]:
        return (each.sink for each in self.tables.values())

    def prepare(self, known: Mapping[str, str], batch_id: int) -> None:
        """Make the tables that are not there, but for those of which Delta's name is `known`.
        Raises OTHER_TABLE where one was made again, TABLE_RESTORED, and as `SinkTable.prepare`."""
        for name, each in self.tables.items():
            merger = self._merger(each)
            unfit = merger.unfit if merger is not None else frozenset()
            if not each.sink.prepare(known.get(name, ""), unfit):
                raise made_again(each.sink.uri, batch_id - 1)
            each.sink.check_restored(batch_id)

    def stop_others(self, driver: Driver | None) -> None:
        if driver is not None and driver.stopped:
            for sink in self:
                sink.stop_others(driver)

    def as_told(self) -> dict[str, ManifestTable]:
        """What a manifest is to say of the tables."""
        return {name: each.as_told() for name, each in self.tables.items()}

    def check(self, manifest: Manifest) -> None:
        """Raises BATCH_UNFINISHED where a manifest that was made before has its output elsewhere,
        or otherwise. Tables that evolve take the columns of an earlier run too."""
        evolving = {name for name, each in self.tables.items() if each.sink.evolves}
        check_output(manifest, self.as_told(), evolving)

    def write(
        self,
        store: VerdictStore,
        manifest: Manifest,
        application: str,
        at: Planned,
        is_made: bool,
        driver: Driver | None = None,
    ) -> None:
        """Write what a manifest says, in a transaction of each table, once. `is_made`: whether this
        run has made it. A run that ends between two tables leaves the rest to the next one.

        Raises as `SinkTable` does."""
        note = note_of(application, at.batch_id, at.topics, manifest.plan)
        for name, each in self.tables.items():
            sink, told = each.sink, manifest.tables[name]
            schema = pa.schema(list(struct_type(told.schema)))
            files = appended_files.files_of(manifest.rows["file"], name)
            given: Any = (application, at.batch_id, not is_made, driver, note, schema)
            merger = self._merger(each)
            if merger is None:
                sink.append(files, *given)
                continue
            columns = told.schema, sink.partition_by
            staged = Staged(store.location, files, sink.keys, *columns, self.storage)
            merged = sink.merge(staged, merger, *given)
            last_batch_results.keep_merged(at.query_id, at.batch_id, merged)

    def _merger(self, table: TableOutput) -> Merger | None:
        """Who merges rows into a table; None where none are."""
        return merger_of(self.batch.sparkSession, table.name_in_spark) if table.sink.keys else None


def merger_of(session: Any, name: str) -> Merger:
    """The session's own Delta where it has one, and else delta-rs."""
    if has_delta(session):
        return SparkMerger(session, name)
    from keyrange.storage.merge_by_delta_rs import DeltaRsMerger

    return DeltaRsMerger()
