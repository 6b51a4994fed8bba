"""The output of a job with commit.isolation=transactional: rows in files beside the manifests,
which become those of a table or topic with the batch that releases them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from keyrange.errors import error
from keyrange.individual_commits import reported_outcomes
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.reported_outcomes import HIDDEN_SPARK
from keyrange.individual_commits.transactional_output import Release, in_order, tasks_for
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.as_written import AS_WRITTEN
from keyrange.storage.data_files import DataFile, FileSettings, check_there
from keyrange.storage.directory import Directory
from keyrange.storage.model.table_columns import quoted
from keyrange.work.appended_files import Output, Target, files_of, writing_again
from keyrange.work.outcome_rows import HIDDEN, member_type

_CHANGE: Final = from_arrow_type(member_type("change"))
_ROW_BITS: Final = 32


@dataclass(frozen=True)
class HeldOutput:
    """What rows become that are held: `outputs` by the job's names for them, files as `files`
    says. `storage`: settings of the object store."""

    outputs: Mapping[str, Output]
    files: FileSettings
    storage: Mapping[str, str]

    def release(
        self,
        session: SparkSession,
        store: VerdictStore,
        held: Sequence[Manifest],
        release: Release,
    ) -> list[tuple[Any, ...]]:
        """Make files of the rows of batches that are released; what tasks tell of these.

        Raises VERDICT_DAMAGED, BATCH_UNFINISHED where an earlier batch has columns that are in no
        row any more, VERDICT_UNWRITABLE, SINK_UNWRITABLE."""
        found: list[tuple[Any, ...]] = []
        held = [each for each in held if release.spans(each)]
        for name, output in self.outputs.items():
            verdicts = [
                (each, self._rows(session, store, each, output, files))
                for each in held
                if (files := files_of(each.rows["file"], name))
            ]
            if verdicts:
                # A key's rows are to be in one file, in their order.
                rows = release.rows(verdicts, HIDDEN)
                if output.topic is not None and len(verdicts) == 1:
                    rows = in_order(rows, HIDDEN, tasks_for(held))
                found += self._written(store, output, rows, release.batch_id)
        return found

    def _rows(
        self,
        session: SparkSession,
        store: VerdictStore,
        manifest: Manifest,
        output: Output,
        files: Sequence[DataFile],
    ) -> DataFrame:
        left = "it is not released yet"
        directory = Directory(store.location, self.storage)
        check_there(directory, files, manifest.batch_id, left, path=store.location)
        columns = self._columns(manifest, output)
        more = sorted({*columns.names} - {*output.columns.names})
        if more:
            text = f"rows of batch {manifest.batch_id} wait that have column {more[0]!r}"
            raise error("BATCH_UNFINISHED", f"{text}, and the job's have none of that name")
        reader = session.read.schema(columns.add(HIDDEN, _CHANGE)).options(**AS_WRITTEN)
        rows = reader.parquet(*(f"{store.location}/{each.name}" for each in files))
        # Tasks number the rows of one batch; timers of several may have fired behind one record.
        row = F.col(f"{HIDDEN}.row") + F.lit(manifest.batch_id << _ROW_BITS)
        return rows.withColumn(HIDDEN, F.col(HIDDEN).withField("row", row))

    def _columns(self, manifest: Manifest, output: Output) -> StructType:
        if output.topic is None:
            return StructType.fromJson(dict(manifest.tables[output.name].schema))
        columns: Any = from_arrow_schema(output.columns)
        return StructType(columns.fields)

    def _written(
        self, store: VerdictStore, output: Output, rows: DataFrame, batch_id: int
    ) -> list[tuple[Any, ...]]:
        attempt = f"{batch_id}/{uuid.uuid4().hex}"
        target = Target((output,), f"{store.location}/{attempt}", attempt, self.files, self.storage)
        given = rows.select(*map(quoted, output.columns.names), HIDDEN)
        made = given.mapInArrow(writing_again(target), StructType([]).add(HIDDEN, HIDDEN_SPARK))
        return reported_outcomes.handed_on(made)["file"]
