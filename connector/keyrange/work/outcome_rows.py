"""The rows that a task hands to Spark: what a user's function made of records, and what became of
the others.

A row has the user's columns and one more, HIDDEN, a struct with a member for each thing that a task
can say. At most one member is set, and where any but `location` and `change` is, the user's columns
are null:

    location      of a row of output: the record that it was made of, where that is kept
    change        of a row of output for a table with keys, or one that is held: its record and its
                  place among the rows of this one, whether it deletes its key, which columns it
                  leaves as they are, and whether a timer has `fired` behind that record
    outcome       a record that is not done; `record` holds it where it is given up
    handed_back   keys [from_hash, last_hash] that were not worked on from an offset on
    done          how many records of a partition are done
    tombstones    how many of these have no value, where values are read
    mentioned     a block of offsets that the function was given (`reported_offsets`)
    worked_on     keys [from_hash, last_hash] of which a task had records, where Spark may have
                  shuffled them before
    file          a file of output below its table, and what Delta's log is to say of it
    columns       Spark's JSON of the columns that the files of the task have, where these are
                  not those with which the job began
    outcome_file  a file of an attempt that holds rows of this kind, or its bytes
    state_run     a run of keys' states in a file (`keyrange.state`)
    state_work    what a task has done with keys' states
    event_time    the greatest event time of a partition, and how many records were late
    timers        when the next timer of a key range is due
    failed_timer  a timer for which the function raised
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.schema_document import schema_of_ddl
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.model.value_forms import raw_column
from keyrange.work.model.outcome import Cause
from keyrange.work.user_errors import NOTHING, Said

HIDDEN: Final = "_keyrange"
# In the metadata of a schema.
_TABLE: Final = b"keyrange.table"

_PARTITION: Final = "topic string, partition int"
_RECORD: Final = (
    "key binary, value binary, timestamp_ms long, headers array<struct<key string, value binary>>"
)
_MEMBERS: Final = {
    "location": f"{_PARTITION}, offset long",
    "change": f"{_PARTITION}, offset long, row long, timestamp_ms long, deleted boolean, "
    "kept array<string>, fired boolean",
    "outcome": f"{_PARTITION}, offset long, key_hash long, cause byte, late boolean, "
    f"error string, frames array<string>, record struct<{_RECORD}>",
    "handed_back": f"{_PARTITION}, from_hash long, last_hash long, from_offset long",
    "done": f"{_PARTITION}, records long",
    "tombstones": f"{_PARTITION}, records long",
    "mentioned": f"{_PARTITION}, block long, bits binary",
    "worked_on": f"{_PARTITION}, from_hash long, last_hash long",
    "file": "name string, size_bytes long, rows long, statistics string, "
    "partition_values array<struct<column string, value string>>, target string",
    "columns": "schema string",
    "outcome_file": "attempt string, name string, size_bytes long, data binary",
    "state_run": f"{_PARTITION}, file string, first_group int, until_group int, "
    "from_hash long, last_hash long, from_seq long, rows long, size_bytes long, footer_crc long",
    "event_time": f"{_PARTITION}, latest_us long, late long",
    "timers": f"{_PARTITION}, from_hash long, last_hash long, timer_us long, retry_ms long, "
    "exact boolean",
    "failed_timer": f"{_PARTITION}, key binary, key_hash long, at_us long, deliveries int, "
    "cause tinyint, error string, frames array<string>, given_up boolean",
    "state_work": ", ".join(f"{each.name} long" for each in fields(StateFigures)),
}
HIDDEN_TYPE: Final = pa.struct(
    list(schema_of_ddl(", ".join(f"{name} struct<{ddl}>" for name, ddl in _MEMBERS.items())))
)
_RECORD_TYPE: Final = HIDDEN_TYPE.field("outcome").type.field("record").type
Columns = Mapping[str, pa.Array]


def member_type(member: str) -> pa.StructType:
    """The fields of a kind of thing; manifests hold them in this order."""
    return HIDDEN_TYPE.field(member).type


def member_rows(member: str, rows: Sequence[Mapping[str, Any] | tuple[Any, ...]]) -> pa.StructArray:
    """Rows that say one kind of thing, whose values have names or stand in the order of these."""
    return _hidden(member, pa.array(rows, member_type(member)))


def _hidden(member: str, values: pa.StructArray) -> pa.StructArray:
    arrays = [
        values if field.name == member else pa.nulls(len(values), field.type)
        for field in HIDDEN_TYPE
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(HIDDEN_TYPE))


def _member(member: str, rows: int, columns: Columns) -> pa.StructArray:
    """The member with the columns that are given, and nulls."""
    kind = member_type(member)
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in kind
    ]
    return _hidden(member, pa.StructArray.from_arrays(arrays, fields=list(kind)))


def with_hidden(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(HIDDEN, HIDDEN_TYPE))


def rows_for(rows: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Rows of output for a table of a job, by its name."""
    return rows.replace_schema_metadata({_TABLE: table.encode()}) if table else rows


def table_of(rows: pa.RecordBatch) -> str:
    """Which table's rows these are; "" of a job that has one."""
    found: bytes = (rows.schema.metadata or {}).get(_TABLE, b"")
    return found.decode()


def changed_rows(output: pa.RecordBatch, change: Columns) -> pa.RecordBatch:
    """Rows that were made for a table with keys, with the fields of member `change`."""
    hidden = _member("change", output.num_rows, change)
    return pa.RecordBatch.from_arrays([*output.columns, hidden], schema=with_hidden(output.schema))


def output_rows(output: pa.RecordBatch, location: Columns | None) -> pa.RecordBatch:
    """Rows that a function made; `location`: topic, partition and offset, where they are kept."""
    rows = output.num_rows
    hidden = pa.nulls(rows, HIDDEN_TYPE)
    if location is not None:
        hidden = _member("location", rows, location)
    return pa.RecordBatch.from_arrays([*output.columns, hidden], schema=with_hidden(output.schema))


def other_rows(schema: pa.Schema, hidden: pa.StructArray) -> pa.RecordBatch:
    """Rows that are no output."""
    nulls = [pa.nulls(len(hidden), field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*nulls, hidden], schema=with_hidden(schema))


def told_rows(
    schema: pa.Schema, member: str, rows: Sequence[Mapping[str, Any] | tuple[Any, ...]]
) -> Iterator[pa.RecordBatch]:
    """Rows of a task of one kind, as of `member_rows`; none where there is nothing to say."""
    if rows:
        yield other_rows(schema, member_rows(member, rows))


class OutcomeRows:
    """Collects the records of a batch of rows that are not done."""

    def __init__(self, batch: pa.RecordBatch, late: pa.Array | None = None) -> None:
        """`late` says of each record whether it is."""
        self._batch, self._late = batch, late
        self._rows: list[tuple[int, Cause, Said, bool]] = []

    def add(self, at: int, cause: Cause, said: Said = NOTHING, is_last: bool = False) -> None:
        """Row `at` is not done; the record itself is kept where it was its last delivery."""
        self._rows.append((at, cause, said, is_last))

    def told(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that say so; none where all are done."""
        if self._rows:
            yield other_rows(schema, self._hidden())

    def _hidden(self) -> pa.StructArray:
        rows, causes, whys, is_last = zip(*self._rows, strict=True)
        at = pa.array(rows, pa.int64())
        columns: dict[str, pa.Array] = {
            "cause": pa.array(map(int, causes), pa.int8()),
            "error": pa.array([why.text for why in whys], pa.string()),
            "frames": pa.array([why.frames or None for why in whys], pa.list_(pa.string())),
            # Of a whole batch no key waits, and nobody reads it.
            "key_hash": self._column("keyHash", at),
        }
        for name in ("topic", "partition", "offset"):
            columns[name] = self._batch.column(name).take(at)
        if self._late is not None:
            columns["late"] = self._late.take(at)
        if any(is_last) and self._has_record():
            columns["record"] = self._records(at, is_last)
        return _member("outcome", len(at), columns)

    def _records(self, at: pa.Array, is_last: Sequence[bool]) -> pa.StructArray:
        """The records that were delivered for the last time, and nulls."""
        arrays = [self._column(each.name, at).cast(each.type) for each in _RECORD_TYPE]
        missing = pa.array([not last for last in is_last])
        return pa.StructArray.from_arrays(arrays, fields=list(_RECORD_TYPE), mask=missing)

    def _column(self, name: str, at: pa.Array) -> pa.Array:
        given = self._batch.schema.names
        if name == "timestamp_ms" and "timestamp" in given:
            times = self._batch.column("timestamp").take(at).cast(pa.timestamp("us", tz="UTC"))
            # Kafka's are whole milliseconds.
            return pc.divide(times.cast(pa.int64()), 1000)
        name = raw_column(name, given)
        return self._batch.column(name).take(at) if name in given else pa.nulls(len(at))

    def _has_record(self) -> bool:
        """Whether key and value are there, and all that is there is as Kafka has it, as far as the
        types of columns say so."""
        given = {field.name: field.type for field in self._batch.schema}
        kept = {raw_column(field.name, given): field.type for field in _RECORD_TYPE}
        has_both = all(raw_column(name, given) in given for name in ("key", "value"))
        return has_both and all(
            pa.types.is_timestamp(kind) if name == "timestamp" else kind == kept.get(name, kind)
            for name, kind in given.items()
        )
