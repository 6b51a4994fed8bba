"""Rows of eight fields, about 200 bytes as Avro, and what writes them: keyrange's encoders, and the
libraries that Python has for it, which are handed the rows as the objects that they take."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import message_factory

from keyrange.formats.format import written_format_of
from keyrange.formats.protobuf.descriptors import message_of
from keyrange.model.value_forms import Schema

# Fields in the order of Spark's columns.
_PROTO: Final = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Event {
  int64 id = 1; int32 flight = 2; double price = 3; bool late = 4;
  google.protobuf.Timestamp at = 5; string carrier = 6; string code = 7; string note = 8;
}
"""
_TEXTS: Final = {"carrier": 2, "code": 12, "note": 150}
_FIRST_US: Final = 1_700_000_000_000_000


def rows(generator: np.random.Generator, count: int) -> pa.StructArray:
    columns = {
        "id": pa.array(generator.integers(0, 2**40, count)),
        "flight": pa.array(generator.integers(0, 10_000, count).astype(np.int32)),
        "price": pa.array(generator.random(count) * 1_000),
        "late": pa.array(generator.random(count) > 0.5),
        "at": pa.array(_FIRST_US + generator.integers(0, 10**12, count), pa.timestamp("us", "UTC")),
    }
    for name, size in _TEXTS.items():
        columns[name] = letters(generator, count, size).cast(pa.string())
    return pa.RecordBatch.from_pydict(columns).to_struct_array()


def letters(generator: np.random.Generator, count: int, size: int) -> pa.Array:
    """A column of lower-case letters, `size` in each row."""
    data = generator.integers(97, 123, count * size, np.uint8)
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def schema(form: str, kind: pa.DataType) -> Schema:
    return Schema(_PROTO) if form == "protobuf" else written_format_of(form).schema_of(kind)


def by_keyrange(form: str, column: pa.StructArray) -> Callable[[], int]:
    """Writes the rows; answers with how many payloads there are."""
    format_ = written_format_of(form)
    told = schema(form, column.type)
    encoder = format_.encoder(column.type, format_.told(told) if told.text else told, b"")

    def write() -> int:
        payloads = encoder.write(column).payloads
        return len(payloads) - int(payloads.null_count)

    return write


def by_library(form: str, column: pa.StructArray) -> Callable[[], int]:
    """As Python's own json, fastavro or Google's upb write the same rows, which are made before."""
    values = column.to_pylist()
    one = {"json": _json, "avro": _avro, "protobuf": _protobuf}[form](column.type)

    def write() -> int:
        return sum(1 for each in values if one(each))

    return write


def _json(_: pa.DataType) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: json.dumps(row, default=str, ensure_ascii=False).encode()


def _avro(kind: pa.DataType) -> Callable[[dict[str, Any]], bytes]:
    parsed = fastavro.parse_schema(json.loads(schema("avro", kind).text))

    def write(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    return write


def _protobuf(_: pa.DataType) -> Callable[[dict[str, Any]], bytes]:
    made: Any = message_factory.GetMessageClass(message_of(Schema(_PROTO)))

    def write(row: dict[str, Any]) -> bytes:
        found: bytes = made(**row).SerializeToString()
        return found

    return write
