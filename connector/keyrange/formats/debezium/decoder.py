"""Debezium's JSON: envelopes with the schema of Kafka Connect's converter beside them, or without.

The schema says what numbers and texts mean (https://debezium.io/documentation, "Data type mappings"
of each connector): days, milliseconds, microseconds or nanoseconds since 1970, decimals as Base64.
Without it an integer for a timestamp, or Base64 for a decimal, could mean several things, and is a
bad value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.formats.debezium.columns import Meaning, read_column
from keyrange.formats.json.decoder import RAW, JsonDecoder
from keyrange.formats.payloads import BadValues, Payloads, ReadValues
from keyrange.formats.schema_document import in_utc
from keyrange.formats.slow_rows import replaced

_NO_ENVELOPE: Final = "no envelope of Debezium: it has no op"


class DebeziumDecoder:
    """Reads changes of a table with these columns."""

    def __init__(self, row: pa.StructType) -> None:
        self._row = row
        written = pa.struct(
            [each.with_type(RAW) if _is_written_otherwise(each.type) else each for each in row]
        )
        rows = [("before", written), ("after", written)]
        change = pa.struct([*rows, ("op", pa.string()), ("ts_ms", pa.int64())])
        self._plain = JsonDecoder(change)
        self._with_schema = JsonDecoder(pa.struct([("schema", RAW), ("payload", change)]))
        types = [in_utc(row), in_utc(row), pa.string(), pa.int64()]
        self.type = pa.struct([f.with_type(t) for f, t in zip(change, types, strict=True)])
        self._meanings: dict[str, Mapping[str, Meaning]] = {}

    def read(self, payloads: Payloads) -> ReadValues:
        near = payloads.contiguous()
        wrapped = self._with_schema.read(near)
        schemas, changes = wrapped.column.flatten()
        why = dict(zip(wrapped.bad.rows.tolist(), wrapped.bad.errors, strict=True))
        bare = np.flatnonzero(
            near.present & changes.is_null().to_numpy(zero_copy_only=False)
            & wrapped.column.is_valid().to_numpy(zero_copy_only=False)
        )  # fmt: skip
        if len(bare):
            found = self._plain.read(near.take(bare))
            changes = replaced(changes, bare.tolist(), found.column)
            bad = zip(found.bad.rows.tolist(), found.bad.errors, strict=True)
            why |= {int(bare[row]): text for row, text in bad}
        present = near.present.copy()
        present[list(why)] = False
        lacking = present & changes.field("op").is_null().to_numpy(zero_copy_only=False)
        why |= {int(row): _NO_ENVELOPE for row in np.flatnonzero(lacking)}
        column = self._converted(schemas, changes, why)
        rows = np.array(sorted(why), np.int64)
        return ReadValues(column, BadValues(rows, [why[row] for row in rows.tolist()]))

    def _converted(
        self, schemas: pa.Array, changes: pa.StructArray, why: dict[int, str]
    ) -> pa.StructArray:
        before, after, op, ts_ms = changes.flatten()
        sides = [
            self._rows("before", before, schemas, why),
            self._rows("after", after, schemas, why),
        ]
        null = changes.is_null().to_numpy(zero_copy_only=False).copy()
        null[list(why)] = True
        columns = [*sides, op, ts_ms]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=pa.array(null))

    def _rows(
        self, side: str, rows: pa.StructArray, schemas: pa.Array, why: dict[int, str]
    ) -> pa.StructArray:
        kind = self.type.field(side).type
        columns = []
        for written, field, wanted in zip(rows.flatten(), self._row, kind, strict=True):
            column = written
            if column.type == RAW:
                column = self._by_schema(f"{side}.{field.name}", column, field, schemas, why)
            columns.append(column.cast(wanted.type))
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=rows.is_null())

    def _by_schema(
        self, path: str, column: pa.Array, field: pa.Field, schemas: pa.Array, why: dict[int, str]
    ) -> pa.Array:
        """A column whose values each mean what their schema says; usually there is one schema."""
        encoded = schemas.dictionary_encode()
        kinds = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        texts = [*encoded.dictionary.to_pylist()]
        parts, order = [], np.empty(len(column), np.int64)
        done = 0
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            meaning = self._meaning(texts[kind] if kind >= 0 else "").get(field.name)
            part, bad = read_column(column.take(pa.array(rows)), field.type, meaning)
            parts.append(part)
            order[rows] = done + np.arange(len(rows))
            done += len(rows)
            for row, text in bad.items():
                why.setdefault(int(rows[row]), f"field {path}: {text}")
        return pa.concat_arrays(parts).take(pa.array(order)) if parts else pa.nulls(0, field.type)

    def _meaning(self, schema: str) -> Mapping[str, Meaning]:
        if schema not in self._meanings:
            self._meanings[schema] = meanings_of(schema)
        return self._meanings[schema]


def _is_written_otherwise(kind: pa.DataType) -> bool:
    """Than `from_json` would have it."""
    return any((pa.types.is_date(kind), pa.types.is_timestamp(kind), pa.types.is_decimal(kind)))


def meanings_of(schema: str) -> dict[str, Meaning]:
    """What the columns of a row mean, by a schema as Kafka Connect's converter writes it; empty
    where there is none."""
    found: dict[str, Meaning] = {}
    for side in _fields(json.loads(schema) if schema else None):
        if isinstance(side, dict) and side.get("field") in ("before", "after"):
            for column in _fields(side):
                scale = (column.get("parameters") or {}).get("scale")
                found[column["field"]] = Meaning(column.get("name") or "", int(scale or 0))
    return found


def _fields(struct: Any) -> list[dict[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, dict) else None
    return [each for each in fields or () if isinstance(each, dict) and "field" in each]
