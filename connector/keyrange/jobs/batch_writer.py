"""How a job's output gets into its tables and topics, in the process that runs the query: what
tasks hand on becomes a manifest, and the manifest one transaction of each."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.errors import error
from keyrange.individual_commits.batch_in_checkpoint import LastRead, Planned, read_offsets
from keyrange.individual_commits.batch_run import current
from keyrange.individual_commits.dead_letter_sink import LettersOfWholeBatches
from keyrange.individual_commits.held_output import HeldOutput
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.table.initial_state import import_source
from keyrange.individual_commits.table_output import BatchOutput, TableOutput
from keyrange.individual_commits.topic_output import TopicOutput
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.jobs.definition import JobDefinition
from keyrange.jobs.first_records import warnings_of
from keyrange.jobs.job_outputs import file_settings, outputs_of
from keyrange.jobs.query_table import check_places, store_of_whole_batches, warn_of_history
from keyrange.jobs.topic import PreparedTopic
from keyrange.model.offsets import nested
from keyrange.sending.open_senders import OpenSenders
from keyrange.storage.sink_history import made_again
from keyrange.work.appended_files import files_of
from keyrange.work.model.output_table import OutputTable

if TYPE_CHECKING:
    from keyrange.storage.delta_log import DeltaLog
    from keyrange.storage.sink_table import SinkTable

_log = logging.getLogger(__name__)


def _what_it_was_made_of(writer: Any) -> dict[str, Any]:
    """What is pickled: what is open from one batch to the next, another process opens by itself."""
    return {each.name: getattr(writer, each.name) for each in fields(writer)}


@dataclass(frozen=True)
class JobTables:
    """The tables of a job. `storage` are settings of the object store; from time to time, every
    `optimize_every` batches, small files are made one, by the session's own Delta. `moved_from`:
    where tables were before, and `names_in_spark` what Spark calls their places, by the job's names
    for them."""

    definition: JobDefinition
    storage: Mapping[str, str]
    optimize_every: int = 0
    moved_from: Mapping[str, str] = field(default_factory=dict)
    names_in_spark: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, PreparedTopic] = field(default_factory=dict)

    def sink(self, own: OutputTable) -> SinkTable:
        from keyrange.storage.delta_log import DeltaLog
        from keyrange.storage.sink_table import SinkTable

        log = self._logs.setdefault(own.name, DeltaLog(own.uri, self.storage))
        form = self._written.get(own.name, own.columns)
        schema = to_arrow_schema(StructType.fromJson(dict(form)), timezone="UTC")
        columns = own.partition_by
        return SinkTable(own.uri, schema, self.storage, columns, log, own.evolves, own.keys)

    @cached_property
    def _logs(self) -> dict[str, DeltaLog]:
        """Open from one batch to the next, as the senders."""
        return {}

    @cached_property
    def _senders(self) -> dict[str, OpenSenders]:
        return {}

    @cached_property
    def _checked(self) -> dict[str, dict[str, str]]:
        """Applications of which this run knows that the tables have their batches, and their
        ids."""
        return {}

    __getstate__ = _what_it_was_made_of

    def prepare(
        self, store: VerdictStore, at: Planned, batch: DataFrame, group: str = ""
    ) -> BatchOutput:
        """The tables of the query, which are made where the query has none. Once in a run: whether
        the batch before this one, which Spark's checkpoint calls finished, is in these tables. Its
        manifest stays until this batch is finished, and its transaction in each table's log.
        `group`: that of the query's commits.

        Raises OUTPUT_PASSED_OVER where there is no manifest, OTHER_TABLE where it is one of another
        table or one lacks its transaction, OTHER_TOPIC likewise, TABLE_RESTORED.
        """
        output, is_known = self._output(batch), at.application in self._checked
        known = self._checked.get(at.application, {})
        sinks = {name: each.sink for name, each in output.tables.items()}
        if not is_known and at.is_of_one_source:
            self._check_before(store, output, at)
        elif not is_known and _goes_on(at, group):
            before = store.before(at)
            self._check_places(before, sinks)
            if before is None or not before.is_of_job:
                _log.warning(
                    "the query goes on from commits whose output no keyrange.job has written: what "
                    "they call done does not come into %s",
                    ", ".join(output.places),
                )
        output.prepare(known, at.batch_id)
        if not is_known:
            for sink in output:
                warn_of_history(sink, at)
            self._checked[at.application] = {name: each.table_id() for name, each in sinks.items()}
        return output

    def _output(self, batch: DataFrame) -> BatchOutput:
        tables = {
            each.name: TableOutput(
                self.sink(each),
                each.columns,
                self.names_in_spark.get(each.name, each.uri),
                bool(each.why_spark),
            )
            for each in self.definition.tables
        }
        topics = {
            name: TopicOutput(
                name,
                json.loads(each.output.schema),
                self._senders.setdefault(name, OpenSenders(each.address)),
                each.senders,
                batch,
                self.storage,
                each.if_forgotten,
            )
            for name, each in self.topics.items()
        }
        held = None
        if self.definition.holds:
            outputs = {each.name: each for each in outputs_of(self.definition)}
            held = HeldOutput(outputs, file_settings(self.definition), self.storage)
        return BatchOutput(tables, batch, self.storage, topics, held)

    def _check_places(self, manifest: Manifest | None, sinks: Mapping[str, SinkTable]) -> None:
        topics = {name: each.address for name, each in self.topics.items()}
        check_places(manifest, sinks, self.moved_from, topics)

    def _check_before(self, store: VerdictStore, output: BatchOutput, at: Planned) -> None:
        sinks = {name: each.sink for name, each in output.tables.items()}
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
        self._check_places(manifest, sinks)
        written = None if manifest is None else store.written_by(manifest)
        if manifest is None or written is None:
            return
        for name, topic in output.topics.items():
            if files_of(written.rows["file"], name):
                topic.check_before(at.application, before)
        for name in manifest.tables:
            sink = sinks[name]
            has_output = bool(files_of(written.rows["file"], name))
            if has_output and not (sink.table_id() and sink.has(at.application, before)):
                raise made_again(sink.uri, before)

    @cached_property
    def _written(self) -> dict[str, Mapping[str, Any]]:
        """The columns of the last rows of tables that evolve: a table that has fields more in its
        structs than rows does not merge these."""
        return {}

    def finish(self, manifest: Manifest) -> None:
        """What is known of the next batches by this one; once in a run, of the first one that has
        records, what is to be warned of."""
        for name, each in manifest.tables.items():
            # Tasks without records do not tell by which columns they would have written.
            if files_of(manifest.rows["file"], name):
                self._written[name] = each.schema
        if manifest.done and not self._has_done:
            self._has_done.append(True)
            for text in warnings_of(manifest, self.definition):
                _log.warning("batch %d: %s", manifest.batch_id, text)

    @cached_property
    def _has_done(self) -> list[bool]:
        """Empty before the first batch of a run that has records."""
        return []

    def optimize(self, batch: DataFrame, batch_id: int) -> None:
        """Between two batches. What fails costs room, and is tried again."""
        if not self.optimize_every or batch_id % self.optimize_every != self.optimize_every - 1:
            return
        for each in self.definition.tables:
            name = self.names_in_spark.get(each.name, each.uri).replace("`", "``")
            try:
                batch.sparkSession.sql(f"OPTIMIZE delta.`{name}`").collect()
            except Exception as failure:
                # Beside a writer that deletes the same files it gives way.
                text = str(failure).splitlines()[0][:300]
                _log.warning("batch %d is written; OPTIMIZE then: %s", batch_id, text)


def _goes_on(at: Planned, group: str) -> bool:
    """Whether a batch goes on from what another query did, and not from imported state alone."""
    mark = at.end.commits
    return mark is not None and mark.resumes is not None and mark.resumes[0] != import_source(group)


@dataclass(frozen=True)
class WriteIndividually:
    """What `keyrange.each_batch` is given: the commits of records are around it."""

    tables: JobTables

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        run = current("keyrange.job")
        run.keeps_state = bool(self.tables.definition.state)
        given = (run.store, run.plan.planned, batch, run.plan.commits.group)
        run.write_verdict(self.tables.prepare(*given))
        assert run.manifest is not None
        self.tables.finish(run.manifest)
        self.tables.optimize(batch, batch_id)


@dataclass(frozen=True)
class WriteWhole:
    """What foreachBatch is given where Spark's checkpoint says all that is done."""

    tables: JobTables
    checkpoint: str
    letters: LettersOfWholeBatches

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._write(batch, batch_id)
        except BaseException:
            # Started again with this object it is another run, which asks what this one has left.
            self._stores.clear()
            self.letters.begin()
            raise

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        at = self._planned(batch_id)
        if at.finished == batch_id:
            message = f"another run of the query has finished batch {batch_id} before this one"
            raise error("CONCURRENT_QUERY", message, path=self.checkpoint)
        store = self._store(at.end.source_id)
        output = self.tables.prepare(store, at, batch)
        manifest, is_made = output.manifest(store, batch, at, partial(self._publish, store, at))
        letters = self.letters.write(store, manifest, at)
        output.write(store, manifest, at, is_made)
        self.letters.finish(letters, manifest, at)
        self.tables.finish(manifest)
        store.remove_old(lambda other: other < batch_id and other <= at.finished, manifest)
        self.tables.optimize(batch, batch_id)

    def _publish(self, store: VerdictStore, at: Planned, **told: Any) -> Manifest:
        start, end = planned(at.start, at.end)
        made = Manifest(at.batch_id, **told, start=start, end=end, terms=self.letters.terms)
        self.letters.check(store, made)
        return store.publish(made, at.start, at.end)

    def _store(self, source_id: str) -> VerdictStore:
        if source_id not in self._stores:
            self._stores[source_id] = store_of_whole_batches(
                self.checkpoint, source_id, self.tables.storage
            )
        return self._stores[source_id]

    @cached_property
    def _stores(self) -> dict[str, VerdictStore]:
        """By source, from one batch to the next."""
        return {}

    @cached_property
    def _last(self) -> LastRead:
        return LastRead(self.tables.storage)

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
