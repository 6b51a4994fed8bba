"""What the rows of a job become: files of its tables and topics, or rows that are held first."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.jobs.definition import JobDefinition
from keyrange.storage.data_files import FILE_SETTINGS, FileSettings
from keyrange.work.appended_files import Output


def arrow_schema(schema: str) -> pa.Schema:
    """The columns of Spark's JSON of a schema."""
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")


def outputs_of(definition: JobDefinition) -> tuple[Output, ...]:
    """What goes to each table and topic of a job."""
    tables = tuple(
        Output(
            each.uri,
            arrow_schema(json.dumps(each.columns)),
            each.partition_by,
            each.keys,
            each.name,
            each.is_staged,
        )
        for each in definition.tables
    )
    return tables + tuple(
        Output(
            "",
            each.rows.schema(arrow_schema(each.schema)),
            name=each.name,
            topic=each.address,
        )
        for each in definition.topics
    )


def as_held(output: Output) -> Output:
    """All rows of an output, beside the manifests: which of them count is not decided yet."""
    return replace(output, table="", partition_by=(), keys=(), is_staged=True, topic=None)


def file_settings(definition: JobDefinition) -> FileSettings:
    # A file is as long as its first group at least.
    group_bytes = min(FILE_SETTINGS.group_bytes, definition.target_bytes)
    return FileSettings(definition.codec, definition.target_bytes, group_bytes)
