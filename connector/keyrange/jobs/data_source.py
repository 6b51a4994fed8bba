"""The data source of one job: what Spark constructs, pickles and asks for readers.

Spark pickles a registered class once, and the reader again for the planner and for each task. A
function of a notebook's cell has no name under which executors could import it, so every job has a
class of its own, which is pickled with what it holds: as bytes, that the task that reads unpickles
and nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from keyrange.errors import invalid_options
from keyrange.jobs.definition import JobDefinition
from keyrange.options import SourceOptions, parse_options
from keyrange.source.data_source import KeyRangeDataSource
from keyrange.source.stream import KeyRangeStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.cluster import Cluster
    from keyrange.source.commit_strategy import JobState
    from keyrange.source.planning_session import NewerColumns


class JobDataSource(KeyRangeDataSource):
    """Reads Kafka topics as a stream, and hands on what its job has made of them."""

    definition: ClassVar[JobDefinition]

    @classmethod
    def name(cls) -> str:
        return f"keyrange_job_{cls.definition.digest}"

    def schema(self) -> StructType:
        parse_options(self._given(), "stream")
        return StructType.fromJson(json.loads(self.definition.rows))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        raise invalid_options("keyrange.job is for streaming queries")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return JobReader(parse_options(self._given(), "stream"), self.definition)


class JobReader(KeyRangeStreamReader):
    """Plans as any stream does; its tasks work on what they read."""

    works = True

    def __init__(self, options: SourceOptions, definition: JobDefinition) -> None:
        super().__init__(replace(options, columns=definition.columns, forms=definition.forms))
        self._given, self._definition = options, definition

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from keyrange.jobs.job_task import JobTask

        return JobTask(self._options, self._definition).rows(partition)

    def _newer_columns(self, cluster: Cluster) -> NewerColumns:
        from keyrange.jobs.newer_columns import NewestColumns, follows

        given, definition = self._given, self._definition
        if not follows(given, definition):
            return super()._newer_columns(cluster)
        return NewestColumns(given, definition, cluster)

    def _state(self) -> JobState | None:
        variables = self._definition.state
        if not variables:
            return None
        from keyrange.jobs.state_check import check_variables
        from keyrange.source.commit_strategy import JobState

        check = partial(check_variables, variables, options=self._options.commits)
        return JobState(self._definition.time, check)


def data_source_of(definition: JobDefinition) -> type[JobDataSource]:
    """A class of the job's own, which is pickled by value wherever it is used."""
    name = f"KeyRangeJob_{definition.digest}"
    return type(name, (JobDataSource,), {"definition": definition, "__module__": "__main__"})
