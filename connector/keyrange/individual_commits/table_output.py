"""The output of a verdict into the tables and topics of its job: files that are there are named in
a table's log, or their rows are written into it by the session's Delta or by delta-rs, or sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from keyrange.errors import error
from keyrange.formats.schema_document import struct_type
from keyrange.formats.time_zones import zone_of
from keyrange.individual_commits import last_batch_results, reported_outcomes
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.held_output import HeldOutput
from keyrange.individual_commits.model.verdict_manifest import (
    Manifest,
    ManifestTable,
    check_output,
    of_tasks,
    topic_text,
)
from keyrange.individual_commits.topic_output import TopicOutput
from keyrange.individual_commits.transactional_output import Release
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.merge_by_file import FileMerger
from keyrange.storage.model.sink_driver import Driver
from keyrange.storage.model.writer_rules import OWN
from keyrange.storage.sink_history import made_again, note_of
from keyrange.storage.staged import Staged, StagedWriter
from keyrange.storage.write_by_spark import SparkWriter, has_delta
from keyrange.work import appended_files

# What one process merges in some seconds. Spark's Delta takes as long for the least of merges, and
# shares larger ones out.
BYTES_MAX: Final = 256 << 20

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyrange.storage.sink_table import SinkTable


@dataclass(frozen=True)
class TableOutput:
    """A table of a job, and the rows for it. `form` is Spark's JSON of their columns, and
    `name_in_spark` what a session calls the place of the table. `by_spark`: its Delta appends."""

    sink: SinkTable
    form: Mapping[str, Any]
    name_in_spark: str
    by_spark: bool = False

    def as_told(self) -> ManifestTable:
        """What a manifest is to say of it."""
        sink = self.sink
        return ManifestTable(sink.uri, sink.table_id(), self.form, sink.keys, self.by_spark)

    def following(self, form: Mapping[str, Any]) -> TableOutput:
        """With rows that have got columns. Raises as `SinkTable.follow`."""
        self.sink.follow(pa.schema(list(struct_type(form))))
        return replace(self, form=form)


@dataclass(frozen=True)
class BatchOutput:
    """The tables and topics of a job by its names for them, and a batch of Spark's that has rows
    for them. `storage`: settings of the object store. `held`: what becomes of rows that are
    held."""

    tables: Mapping[str, TableOutput]
    batch: Any
    storage: Mapping[str, str]
    topics: Mapping[str, TopicOutput] = field(default_factory=dict)
    held: HeldOutput | None = None

    def __iter__(self) -> Iterator[SinkTable]:
        return (each.sink for each in self.tables.values())

    @property
    def places(self) -> list[str]:
        """What messages call the tables and topics."""
        tables = [f"table {each.uri}" for each in self]
        return tables + [topic_text(each.topic) for each in self.topics.values()]

    def prepare(self, known: Mapping[str, str], batch_id: int) -> None:
        """Make the tables that are not there, but for those of which Delta's name is `known`.
        Raises OTHER_TABLE where one was made again, TABLE_RESTORED, and as `SinkTable.prepare`."""
        for name, each in self.tables.items():
            writers = self._writers(each, each.as_told())
            rules = writers[-1].rules if writers else OWN
            if not each.sink.prepare(known.get(name, ""), rules):
                raise made_again(each.sink.uri, batch_id - 1)
            each.sink.check_restored(batch_id)

    def stop_others(self, driver: Driver | None) -> None:
        if driver is not None and driver.stopped:
            for sink in self:
                sink.stop_others(driver)
            for topic in self.topics.values():
                topic.stop_others(driver)

    def as_told(self, columns: Sequence[tuple[str]] = ()) -> dict[str, Any]:
        """What a manifest is to say of the tables and topics, as its fields. `columns`: of the rows
        of a table that follows its schema, as each task has them, none where they are the job's.
        Raises as `SinkTable.follow`."""
        tables = self.tables
        for (text,) in columns[:1]:
            tables = {name: each.following(json.loads(text)) for name, each in tables.items()}
        return {
            "tables": {name: each.as_told() for name, each in tables.items()},
            "topics": {name: each.as_told() for name, each in self.topics.items()},
        }

    def mark(self, at: Planned, driver: Driver | None = None) -> None:
        """What has to be done before there is a manifest of a batch. Raises as
        `TopicOutput.mark`."""
        for each in self.topics.values():
            each.mark(at.application, at, driver)

    def check(self, manifest: Manifest) -> None:
        """Raises BATCH_UNFINISHED where a manifest that was made before has its output elsewhere,
        or otherwise. Tables that evolve take the columns of an earlier run too."""
        evolving = {name for name, each in self.tables.items() if each.sink.evolves}
        check_output(manifest, **self.as_told(), evolving=evolving)

    def manifest(
        self,
        store: VerdictStore,
        batch: DataFrame,
        at: Planned,
        publish: Callable[..., Manifest],
        check: Callable[[], object] = lambda: None,
        driver: Driver | None = None,
    ) -> tuple[Manifest, bool]:
        """The manifest of a batch, and whether this run has made it: by `publish`, of the fields
        that say what tasks hand on in `batch` and where that goes. `check` comes before it, also
        where there is a manifest already.

        Raises as `VerdictStore`, `mark`, both functions, and `check` of this class do."""
        manifest, found = store.manifest(at.batch_id, at.start, at.end), None
        if manifest is None:
            self.mark(at, driver)
            with store.writing():
                found = reported_outcomes.handed_on(batch)
        check()
        if found is not None:
            manifest = publish(**self.as_told(found.pop("columns")), **of_tasks(found))
        assert manifest is not None
        self.check(manifest)
        return manifest, found is not None

    def release(
        self, store: VerdictStore, held: Sequence[Manifest], release: Release
    ) -> list[tuple[Any, ...]]:
        """As `HeldOutput.release`."""
        assert self.held is not None
        return self.held.release(self.batch.sparkSession, store, held, release)

    def write(
        self,
        store: VerdictStore,
        manifest: Manifest,
        at: Planned,
        is_made: bool,
        driver: Driver | None = None,
    ) -> None:
        """Write what a manifest says, in a transaction of each table, and send it, once. `is_made`:
        whether this run has made it. A run that ends between two leaves the rest to the next one.

        Raises as `SinkTable` and `TopicOutput` do."""
        # Of a whole batch every record is done, whichever attempt the table has.
        verdict = manifest.verdict if driver is not None else ""
        note = note_of(at.application, at.batch_id, at.topics, manifest.plan, verdict)
        for name, each in self.tables.items():
            sink, told = each.sink, manifest.tables[name]
            schema = pa.schema(list(struct_type(told.schema)))
            files = appended_files.files_of(manifest.rows["file"], name)
            given: Any = (at.application, at.batch_id, not is_made, driver, note, schema)
            writers = self._writers(each, told)
            if not writers:
                sink.append(files, *given)
                continue
            columns = told.schema, sink.partition_by
            staged = Staged(store.location, files, sink.keys, *columns, self.storage)
            counts = sink.write(staged, writers, *given)
            if sink.keys:
                last_batch_results.keep_merged(at.query_id, at.batch_id, counts)
        for topic in self.topics.values():
            topic.write(store, manifest, at.application, at, is_made, driver)

    def _writers(self, table: TableOutput, told: ManifestTable) -> list[StagedWriter]:
        """Who may write the rows of files into a table, as of `SinkTable.write`; nobody where these
        become its own. Raises SINK_UNSUITABLE."""
        if not told.is_staged:
            return []
        writers = writers_of(self.batch.sparkSession, table.name_in_spark)
        if told.keys:
            return writers
        if not isinstance(writers[-1], SparkWriter):
            message = (
                "its rows wait to be appended by Delta, which this session lacks "
                "(spark.sql.extensions and spark.sql.catalog.spark_catalog)"
            )
            raise error("SINK_UNSUITABLE", message, table=told.uri)
        return writers[-1:]


def writers_of(session: Any, name: str) -> list[StagedWriter]:
    """Who merges rows into a table: this process, and where that is too much for it, or the table
    asks for more, the session's own Delta."""
    if has_delta(session):
        return [FileMerger(BYTES_MAX, other_zone(session)), SparkWriter(session, name)]
    return [FileMerger()]


def other_zone(session: Any) -> str:
    """The time zone of days and times that the session's Delta writes without one, "" for UTC."""
    zone: str = session.conf.get("spark.sql.session.timeZone", None) or "UTC"
    return zone if zone_of(zone) != 0 else ""
