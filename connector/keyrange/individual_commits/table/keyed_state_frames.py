"""`keyrange.state`: the state of keys as a DataFrame."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from keyrange.errors import invalid_options
from keyrange.individual_commits.table.keyed_state_rows import (
    StoredState,
    no_state,
    state_directory,
)
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.keyed_state.variables import StateForm, Variable
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options import check_names
from keyrange.options.commits import storage_in

# About as many keys are read by one task.
_TASK_ROWS: Final = 500_000


def state(
    spark: SparkSession,
    table: str,
    at: int | None = None,
    *,
    group: str = "",
    source: str = "",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The state of keys that a `keyrange.job` keeps: topic, partition, key and a column for each
    variable, null where a key has none.

    `table` is the query's commit table, as a path or URI. `at`: as of this commit; that of a batch
    is in the rows of the table. `group` and `source` as of `keyrange commits`. `options` of the
    query that say where its state is: stateDirectory, and objectStore.NAME. What has
    expired by its time to live, when this is called or at that commit, is not there.

    Raises NO_COMMIT_TABLE, INVALID_OPTIONS where there is no such source or commit, NO_STATE.
    """
    from keyrange.individual_commits.table.commit_admin import open_commits

    named = dict(options or {})
    check_names(named)
    storage = storage_in(named)
    commits = open_commits(table, group, source, storage)
    last = commits.table.known()
    if at is not None and not 1 <= at <= last.seq:
        raise invalid_options(f"at={at}: the commits are 1 to {last.seq}")
    known = last if at is None else commits.table.known(at)
    # One moment for the whole frame, whenever and however often Spark computes it.
    then = None if at is None else commits.last(at)
    time_ms = int(time.time() * 1000) if then is None else then.committed_at_ms
    stored = StoredState(state_directory(table, named), known.runs_there, time_ms, storage)
    if not stored.form.names:
        raise no_state(known.seq, table)
    tasks = list(_tasks(stored))
    directory, variables = (stored.directory, storage), stored.form.variables

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                yield from _rows(directory, variables, time_ms, task)

    schema: Any = from_arrow_schema(stored.columns)
    planned = spark.createDataFrame(tasks, "topic string, partition int, span string, runs string")
    return planned.repartition(max(len(tasks), 1)).mapInArrow(read, schema)


def _tasks(stored: StoredState) -> Iterator[tuple[str, int, str, str]]:
    for partition, runs in sorted(stored.runs.items()):
        rows = sum(run.rows for run in runs)
        told = json.dumps([run.flat() for run in runs])
        for span in split_evenly(SPACE, max(rows // _TASK_ROWS, 1)):
            yield (*partition, json.dumps([span.from_hash, span.until_hash]), told)


def _rows(
    directory: tuple[str, Mapping[str, str]],
    variables: tuple[Variable, ...],
    time_ms: int,
    task: Mapping[str, Any],
) -> Iterator[pa.RecordBatch]:
    partition = TopicPartition(task["topic"], task["partition"])
    runs = tuple(map(StateRun.of_flat, json.loads(task["runs"])))
    stored = StoredState(directory[0], {partition: runs}, time_ms, directory[1])
    # Those of the whole frame: a partition's own files may be older.
    stored.form = StateForm(variables)
    yield from stored.table_rows(partition, KeyRange(*json.loads(task["span"])))
