"""The state that a job begins with: a DataFrame or a Delta table, which is imported before the
first batch, by the executors where Spark can read it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.each_batch import open_table
from keyrange.individual_commits.table.initial_import import (
    Import,
    Imported,
    finish,
    import_rows,
)
from keyrange.individual_commits.table.initial_state import (
    InitialState,
    InitialTopic,
    import_source,
)
from keyrange.jobs.initial_windows import state_of_rows
from keyrange.keyed_state.initial_rows import PLACE, InitialRows
from keyrange.keyed_state.initial_runs import Buckets, InitialFile, InitialRun, by_bucket
from keyrange.keyed_state.variables import KEY, KEY_HASH, StateForm, Variable
from keyrange.options import SourceOptions
from keyrange.storage.directory import Directory
from keyrange.storage.given_rows import given_rows
from keyrange.storage.write_by_spark import has_delta
from keyrange.windowing.operators import KeptRows

# Into about so many pieces Spark sorts the rows.
_BUCKETS: Final = 200
_BUCKET: Final = "bucket"
_UNFIT: Final = re.compile(r"\[(INITIAL_STATE_UNFIT|STATE_UNWRITABLE)\] (.*?)\. To mend it: ")


@dataclass(frozen=True)
class InitialArgument:
    """What a job begins with. `kept`: how the rows of windows become the state of keys."""

    given: Any
    kept: KeptRows | None = None

    def begin(
        self, session: SparkSession, options: SourceOptions, state: tuple[Variable, ...]
    ) -> None:
        """Import it, unless that is done; a query that has begun has it.

        Raises INITIAL_STATE_UNFIT, INITIAL_STATE_TOO_LATE where the group has commits and no
        imported state, STATE_UNWRITABLE, COMMITS_FENCED.
        """
        commits = options.commits
        storage = commits.revealed_storage()
        table = open_table(commits, import_source(commits.group))
        place = (commits.state_directory, storage, commits.scope)
        into = InitialState(commits.group, table, *place)
        if into.is_done:
            return
        into.begin()
        topics = _topics_of(options)
        now_ms = int(time.time() * 1000)
        counts = into.homes(topics)
        texts_are_keys = options.values.key_format in ("raw", "string")
        form = StateForm(state)

        def rows_of(columns: pa.Schema) -> InitialRows:
            return InitialRows(form, columns, counts, now_ms, texts_are_keys)

        frame = self._frame(session)
        if frame is None:
            path = fspath(str(self.given))
            given = given_rows([path], storage)
            said = Import("keyrange.job", path, now_ms)
            import_rows(into, rows_of(given.columns), topics, given, said)
            return
        if self.kept is not None:
            frame = state_of_rows(frame, self.kept)
        source = "a DataFrame" if isinstance(self.given, DataFrame) else fspath(self.given)
        rows = rows_of(to_arrow_schema(frame.schema, timezone="UTC"))
        imported = _by_spark(frame, rows, into, now_ms)
        finish(into, topics, imported, Import("keyrange.job", source, now_ms))

    def _frame(self, session: SparkSession) -> DataFrame | None:
        """None where Spark does not read Delta tables."""
        if isinstance(self.given, DataFrame):
            return self.given
        if has_delta(session):
            return session.read.format("delta").load(fspath(self.given))
        if self.kept is not None:
            text = "initial_state of windows is a DataFrame, where the session reads no Delta"
            raise invalid_options(text)
        return None


def checked_initial(
    options: SourceOptions,
    given: object,
    kept: KeptRows | None = None,
    state: tuple[Variable, ...] | None = None,
) -> InitialArgument | None:
    """What a job begins with; None for nothing. Raises INVALID_OPTIONS where it cannot be."""
    if given is None:
        return None
    wrong = []
    if not isinstance(given, (DataFrame, str, PathLike)):
        kind = type(given).__name__
        wrong.append(f"initial_state must be a DataFrame or a path, and is of type {kind}")
    if state == ():
        wrong.append("initial_state is for jobs with state")
    names = [name for name, _ in kept.columns] if kept else []
    if twice := sorted({name for name in names if names.count(name) > 1}):
        wrong.append(f"initial_state would have two columns {twice[0]!r}: see by")
    if options.commits.on_fresh_start == "ignore":
        wrong.append("initial_state is among what commitTable.onFreshStart=ignore leaves out")
    if wrong:
        raise invalid_options(wrong)
    return InitialArgument(given, kept)


def _topics_of(options: SourceOptions) -> dict[str, InitialTopic]:
    """The topics of a query, with all of their partitions."""
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.subscribed_topics import describe

    with closing(Cluster(options.client)) as cluster:
        names = sorted(describe(cluster, options.subscription).topics)
        view = cluster.describe(names)
        return {
            name: InitialTopic(topic.topic_id, len(topic.leaders))
            for name, topic in view.topics.items()
        }


def _by_spark(frame: DataFrame, rows: InitialRows, into: InitialState, now_ms: int) -> Imported:
    """Write runs of the rows of a frame, in the executors."""
    buckets = Buckets.about(rows.partitions, _BUCKETS)
    place = (into.directory, dict(into.storage), into.source_id)
    told = (rows, buckets)
    placed: Any = from_arrow_schema(
        pa.schema([pa.field(_BUCKET, pa.int64()), *rows.schema]), prefer_timestamp_ntz=True
    )

    def place_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _in_buckets(batch, *told)

    def write_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _written(batches, *told, place, now_ms)

    found = (
        frame.mapInArrow(place_rows, placed)
        .repartition(_BUCKET)
        .sortWithinPartitions(PLACE, KEY_HASH, KEY)
        .mapInArrow(write_rows, "runs string, empty long")
    )
    try:
        done = found.collect()
    except Exception as failure:
        # What a task raises comes as the text of Spark's own error.
        if (said := _UNFIT.search(str(failure))) is None:
            raise
        raise error(said[1], said[2]) from None
    runs = [InitialRun.of_flat(run) for row in done for run in json.loads(row.runs)]
    return Imported(runs, sum(row.empty for row in done))


def _in_buckets(batch: pa.RecordBatch, rows: InitialRows, buckets: Buckets) -> pa.RecordBatch:
    placed = rows.placed(batch)
    numbers = pa.array(buckets.numbers(placed))
    return pa.RecordBatch.from_arrays(
        [numbers, *placed.columns], names=[_BUCKET, *placed.schema.names]
    )


def _written(
    batches: Iterable[pa.RecordBatch],
    rows: InitialRows,
    buckets: Buckets,
    place: tuple[str, Mapping[str, str], str],
    now_ms: int,
) -> pa.RecordBatch:
    directory, storage, source_id = place
    file = InitialFile(Directory(directory, storage), source_id, rows.form, now_ms)
    runs = file.write(by_bucket(batches, buckets, rows.form))
    told = json.dumps([each.flat() for each in runs])
    return pa.RecordBatch.from_arrays(
        [pa.array([told]), pa.array([file.empty], pa.int64())], names=["runs", "empty"]
    )
