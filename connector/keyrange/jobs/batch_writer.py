"""How a job's output gets into its table, in the process that runs the query: what tasks hand on
becomes a manifest, and the manifest one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import error
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.batch_in_checkpoint import LastRead, Planned, read_offsets
from keyrange.individual_commits.batch_run import current
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.verdict_store import VerdictStore, check_table, output_schema
from keyrange.jobs.definition import JobDefinition
from keyrange.jobs.query_table import store_of_whole_batches, warn_of_history
from keyrange.model.offsets import nested
from keyrange.storage.model.sink_driver import application_of
from keyrange.storage.sink_history import made_again, note_of
from keyrange.work import appended_files

if TYPE_CHECKING:
    from keyrange.storage.delta_log import DeltaLog
    from keyrange.storage.sink_table import SinkTable

_log = logging.getLogger(__name__)


def _what_it_was_made_of(writer: Any) -> dict[str, Any]:
    """What is pickled: what is open from one batch to the next, another process opens by itself."""
    return {each.name: getattr(writer, each.name) for each in fields(writer)}


@dataclass(frozen=True)
class JobTable:
    """The table of a job. `storage` are settings of the object store; from time to time, every
    `optimize_every` batches, small files are made one, by the session's own Delta. `moved_from`:
    where the table was before. `evolves`: whether it gets the columns that it lacks."""

    definition: JobDefinition
    storage: Mapping[str, str]
    optimize_every: int = 0
    moved_from: str = ""
    evolves: bool = False

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.definition.schema))

    def sink(self) -> SinkTable:
        from keyrange.storage.sink_table import SinkTable

        schema = to_arrow_schema(self.schema, timezone="UTC")
        columns = self.definition.partition_by
        return SinkTable(
            self.definition.table, schema, self.storage, columns, self._log, self.evolves
        )

    @cached_property
    def _log(self) -> DeltaLog:
        """Open from one batch to the next."""
        from keyrange.storage.delta_log import DeltaLog

        return DeltaLog(self.definition.table, self.storage)

    @cached_property
    def _checked(self) -> dict[str, str]:
        """Applications of which this run knows that the table has their batches, and its id."""
        return {}

    __getstate__ = _what_it_was_made_of

    def prepare(self, store: VerdictStore, application: str, at: Planned) -> SinkTable:
        """The table of the query, which is made where the query has none. Once in a run: whether
        the batch before this one, which Spark's checkpoint calls finished, is in this table. Its
        manifest stays until this batch is finished, and its transaction in the table's log.

        Raises OUTPUT_PASSED_OVER where there is no manifest, OTHER_TABLE where it is one of another
        table or this one lacks its transaction, TABLE_RESTORED.
        """
        sink, known = self.sink(), self._checked.get(application, "")
        if not known and at.is_of_one_source:
            self._check_before(store, sink, application, at)
        elif not known and at.end.commits is not None and at.end.commits.resumes is not None:
            before = store.before(at)
            check_table(before, sink, self.moved_from)
            if before is None or not before.table:
                _log.warning(
                    "the query goes on from commits whose output no keyrange.job has written: what "
                    "they call done does not come into table %s",
                    sink.uri,
                )
        if not sink.prepare(known):
            raise made_again(sink.uri, at.batch_id - 1)
        sink.check_restored(at.batch_id)
        if not known:
            warn_of_history(sink, at)
            self._checked[application] = sink.table_id()
        return sink

    def _check_before(
        self, store: VerdictStore, sink: SinkTable, application: str, at: Planned
    ) -> None:
        before = at.batch_id - 1
        manifest = store.manifest_of(before)
        if manifest is None and store.manifest_of(at.batch_id) is None and at.end.commits is None:
            # A manifest of this batch has let that of the batch before it be removed. With
            # individual commits the commit table has already told.
            raise error(
                "OUTPUT_PASSED_OVER",
                "the checkpoint says that a batch is finished, and no output of it was written: "
                "its query was started with another sink, or its manifest was removed",
                batch=before,
                until=json.dumps(nested(at.start.positions), sort_keys=True),
            )
        check_table(manifest, sink, self.moved_from)
        has_output = manifest is not None and manifest.table and manifest.rows["file"]
        if has_output and not (sink.table_id() and sink.has(application, before)):
            raise made_again(sink.uri, before)

    def optimize(self, batch: DataFrame, batch_id: int) -> None:
        """Between two batches. What fails costs room, and is tried again."""
        if self.optimize_every and batch_id % self.optimize_every == self.optimize_every - 1:
            name = self.definition.table.replace("`", "``")
            try:
                batch.sparkSession.sql(f"OPTIMIZE delta.`{name}`").collect()
            except Exception as failure:
                # Beside a writer that deletes the same files it gives way.
                text = str(failure).splitlines()[0][:300]
                _log.warning("batch %d is written; OPTIMIZE then: %s", batch_id, text)


@dataclass(frozen=True)
class WriteIndividually:
    """What `keyrange.each_batch` is given: the commits of records are around it."""

    table: JobTable

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        run = current("keyrange.job")
        run.keeps_state = bool(self.table.definition.state)
        planned = run.plan.planned
        sink = self.table.prepare(run.store, planned.application, planned)
        run.append_verdict(self.table.schema, sink)
        self.table.optimize(batch, batch_id)


@dataclass(frozen=True)
class WriteWhole:
    """What foreachBatch is given where Spark's checkpoint says all that is done."""

    table: JobTable
    checkpoint: str

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._write(batch, batch_id)
        except BaseException:
            # Started again with this object it is another run, which asks what this one has left.
            self._stores.clear()
            raise

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        at = self._planned(batch_id)
        store = self._store(at.end.source_id)
        application = application_of(at.query_id, at.end.source_id)
        sink = self.table.prepare(store, application, at)
        form = json.loads(self.table.schema.json())
        manifest = store.manifest(batch_id, at.start, at.end)
        is_made = manifest is None
        if manifest is None:
            with store.writing():
                found = reported_outcomes.handed_on(batch)
            offsets = planned(at.start, at.end)
            made = Manifest(batch_id, "", {}, form, *offsets, table=sink.uri, rows=found)
            made = replace(made, table_id=sink.table_id())
            manifest = store.publish(made, at.start, at.end)
        schema = output_schema(manifest, sink, form)
        files = [appended_files.data_file(*each) for each in manifest.rows["file"]]
        note = note_of(application, batch_id, at.topics, manifest.plan)
        sink.append(files, application, batch_id, not is_made, note=note, schema=schema)
        store.remove_old(lambda other: other < batch_id and other <= at.finished)
        self.table.optimize(batch, batch_id)

    def _store(self, source_id: str) -> VerdictStore:
        if source_id not in self._stores:
            self._stores[source_id] = store_of_whole_batches(
                self.checkpoint, source_id, self.table.storage
            )
        return self._stores[source_id]

    @cached_property
    def _stores(self) -> dict[str, VerdictStore]:
        """By source, from one batch to the next."""
        return {}

    @cached_property
    def _last(self) -> LastRead:
        return LastRead(self.table.storage)

    __getstate__ = _what_it_was_made_of

    def _planned(self, batch_id: int) -> Planned:
        found = read_offsets(self.checkpoint, batch_id, self._last)
        found = [each for each in found if each.end.source_id]
        if len(found) != 1:
            raise error(
                "INVALID_CHECKPOINT_PATH",
                f"batch {batch_id} of the checkpoint is not one of a keyrange.job",
                path=self.checkpoint,
            )
        return found[0]
