"""The rows of a verdict: what a user's function made of records, and what became of the others.

A file holds the user's columns and one more, HIDDEN, a struct. It is null, or its code DONE, where
the row is output; else the row stands for what `Code` says, and the user's columns are null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange

HIDDEN: Final = "_keyrange"
ERROR_BYTES_MAX: Final = 4096


class Code(IntEnum):
    """What a row stands for. From REJECTED to UNMENTIONED they are the values of `Cause`."""

    DONE = 0
    REJECTED = 1
    TIMED_OUT = 2
    HELD_BACK = 3
    UNMENTIONED = 4
    # The key range [place, until_place], both included, was not worked on from the offset on.
    HANDED_BACK = 5
    # A block of offsets, as `mentions` makes them: `offset` is its number, `key` its bits.
    MENTIONED = 6
    # `offset` is how many records of the partition are done.
    TALLY = 7
    # A file of output below its table: `topic` is its name, `offset` its bytes, `place` its rows,
    # `error` the statistics that Delta's log is to have, `key` its partition's values.
    DATA_FILE = 8


_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
HIDDEN_TYPE: Final = pa.struct(
    [
        pa.field("code", pa.int8()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key_hash", pa.int64()),
        pa.field("last_hash", pa.int64()),
        pa.field("error", pa.string()),
        # Whether the record itself is here, as it is where this was its last delivery.
        pa.field("whole", pa.bool_()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", _HEADERS),
    ]
)
_RECORD: Final = ("key", "value", "timestamp", "headers")
Columns = Mapping[str, pa.Array]


def hidden_column(rows: int, columns: Columns) -> pa.StructArray:
    """The struct with the columns that are given, and nulls."""
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in HIDDEN_TYPE
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(HIDDEN_TYPE))


def with_hidden(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(HIDDEN, HIDDEN_TYPE))


def output_rows(output: pa.RecordBatch, location: Columns | None) -> pa.RecordBatch:
    """Rows that a function made; `place`: topic, partition and offset, where they are kept."""
    if location is None:
        hidden = pa.nulls(output.num_rows, HIDDEN_TYPE)
    else:
        code = pa.repeat(pa.scalar(int(Code.DONE), pa.int8()), output.num_rows)
        hidden = hidden_column(output.num_rows, {"code": code, **location})
    return pa.RecordBatch.from_arrays([*output.columns, hidden], schema=with_hidden(output.schema))


def other_rows(schema: pa.Schema, hidden: pa.StructArray) -> pa.RecordBatch:
    """Rows that are no output."""
    nulls = [pa.nulls(len(hidden), field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*nulls, hidden], schema=with_hidden(schema))


class NotDoneRows:
    """Collects the records of a batch of rows that are not done."""

    def __init__(self, batch: pa.RecordBatch, key_hash_column: str = "keyHash") -> None:
        self._batch = batch
        self._key_hash_column = key_hash_column
        self._at: list[int] = []
        self._codes: list[int] = []
        self._errors: list[str | None] = []
        self._last: list[bool] = []

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at: int, code: Code, error: str | None = None, last: bool = False) -> None:
        """Row `at` is not done; the record itself is kept where it was its last delivery."""
        self._at.append(at)
        self._codes.append(code)
        self._errors.append(error)
        self._last.append(last)

    def hidden(self) -> pa.StructArray:
        at = pa.array(self._at, pa.int64())
        columns: dict[str, pa.Array] = {
            "code": pa.array(self._codes, pa.int8()),
            "error": pa.array(self._errors, pa.string()),
            "key_hash": self._batch.column(self._key_hash_column).take(at),
        }
        for name in ("topic", "partition", "offset"):
            columns[name] = self._batch.column(name).take(at)
        if any(self._last) and self._has_record():
            kept = pa.array(
                [at if last else None for at, last in zip(self._at, self._last, strict=True)],
                pa.int64(),
            )
            for name in _RECORD:
                if name in self._batch.schema.names:
                    columns[name] = self._batch.column(name).take(kept)
            columns["whole"] = pa.array(self._last, pa.bool_())
        return hidden_column(len(at), columns)

    def _has_record(self) -> bool:
        """Whether key and value are there as they were read, as far as their types say so."""
        types = {field.name: field.type for field in self._batch.schema}
        times = types.get("timestamp")
        return bool(
            types.get("key") == types.get("value") == pa.binary()
            and (times is None or pa.types.is_timestamp(times))
            and types.get("headers", _HEADERS) == _HEADERS
        )


def handed_back_rows(
    handed_back: Mapping[TopicPartition, Mapping[int, int]],
    cells: Mapping[TopicPartition, Sequence[KeyRange]],
) -> pa.StructArray:
    """A row for each key range that was not worked on to its end."""
    found = [
        (partition, cells[partition][cell], offset)
        for partition, back in sorted(handed_back.items())
        for cell, offset in sorted(back.items())
    ]
    return hidden_rows(
        [
            {
                "code": int(Code.HANDED_BACK),
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "key_hash": span.from_hash,
                "last_hash": span.until_hash - 1,
            }
            for partition, span, offset in found
        ]
    )


def tally_rows(done: Mapping[TopicPartition, int]) -> pa.StructArray:
    """A row for each partition: how many of its records are done."""
    return hidden_rows(
        [
            {
                "code": int(Code.TALLY),
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": count,
            }
            for partition, count in sorted(done.items())
        ]
    )


def hidden_rows(rows: Sequence[Mapping[str, Any]]) -> pa.StructArray:
    return pa.array(rows, HIDDEN_TYPE)


def bounded(text: str) -> str:
    """An error's text of at most ERROR_BYTES_MAX bytes."""
    data = text.encode("utf-8", "replace")
    return data[:ERROR_BYTES_MAX].decode("utf-8", "ignore")
