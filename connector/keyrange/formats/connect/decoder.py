"""Kafka Connect's JSON: documents with the schema of its converter beside them, or without.

The schema says what numbers and texts mean: days, milliseconds, microseconds or nanoseconds since
1970, decimals as Base64 (https://debezium.io/documentation, "Data type mappings" of each
connector). Without it an integer for a timestamp, or Base64 for a decimal, could mean several
things, and is a bad value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.connect.columns import DIGITS, Meaning, read_column
from keyrange.formats.grouped_rows import Group, together
from keyrange.formats.json.decoder import RAW, JsonDecoder
from keyrange.formats.json.rows import Misfit, with_misfits
from keyrange.formats.left_out import fields_beyond, tell
from keyrange.formats.payloads import Flags, Numbers, Payloads, ReadValues
from keyrange.formats.schema_document import in_utc
from keyrange.formats.slow_rows import replaced

_Array = np.ndarray[Any, Any]
# A row, the field's path in it, why its value has no place there, and that value as JSON.
Unfit = tuple[int, tuple[str, ...], str, str]
_NOTHING: Final = Meaning("")
# A topic has a few schemas; somebody may write one with each record.
_MEANINGS_MAX: Final = 1_000
# What is longer is the scale of no decimal.
_SCALE_DIGITS: Final = 12


class ConnectDecoder:
    """Reads documents into structs of one type, in which `DIGITS` stands for decimals of any
    size. `row`: the field with the columns of a table; "" where that is the whole document.
    `others` are fields of documents that nobody has columns for, nor rescues."""

    def __init__(
        self,
        kind: pa.StructType,
        row: str = "",
        others: Collection[str] = (),
        rescues: bool = False,
    ) -> None:
        self._kind = kind
        self._row = row
        self._rescues = rescues
        written = _written(kind)
        # Each row that has a field more is read anew.
        known = [*written, *((name, RAW) for name in others if rescues)]
        self._plain = JsonDecoder(pa.struct(known), rescues)
        payload = RAW if rescues else written
        self._with_schema = JsonDecoder(pa.struct([("schema", RAW), ("payload", payload)]))
        # A row may have columns of these names itself.
        self._schema_alone = JsonDecoder(pa.struct([("schema", RAW)]))
        self._has_payload = kind.get_field_index("payload") >= 0
        self._has_schema = kind.get_field_index("schema") >= 0
        self.type: pa.StructType = shown(kind)
        self._meanings: dict[str, Meaning] = {}

    def read(self, payloads: Payloads) -> ReadValues:
        """A row without a payload, or with a bad one, is null."""
        near = payloads.contiguous()
        wrapped = self._with_schema.read(near)
        schemas, documents = wrapped.column.flatten()
        is_bare = self._are_bare(near, wrapped.column, schemas)
        bare = np.flatnonzero(is_bare)
        why = {row: text for row, text in wrapped.bad.items() if not is_bare[row]}
        if self._rescues:
            return self._rescued(near, schemas, documents, bare, why)
        if len(bare):
            found = self._plain.read(near.take(bare))
            documents = replaced(documents, bare.tolist(), found.column)
            why |= {int(bare[row]): text for row, text in found.bad.items()}
        read = self._by_schema(schemas, documents, None)
        return null_where_bad(read.column, {**read.bad, **why})

    def _are_bare(self, payloads: Payloads, wrapped: pa.Array, schemas: pa.Array) -> Flags:
        """Which documents are rows, and not the two members that a converter with schemas writes.
        Without a payload they are, but for a null that has its schema; where rows have a payload
        themselves, those are that have no object for a schema."""
        if self._has_payload:
            schemas = self._schema_alone.read(payloads).column.field(0)
        found: Flags = payloads.present & ~_flags(pc.fill_null(pc.starts_with(schemas, "{"), False))
        if self._has_payload:
            return found
        if self._has_schema:
            found = payloads.present
        return found & _flags(wrapped.is_valid()) & _flags(wrapped.field("payload").is_null())

    def _rescued(
        self,
        payloads: Payloads,
        schemas: pa.Array,
        texts: pa.Array,
        bare: Numbers,
        why: dict[int, str],
    ) -> ReadValues:
        """As `read`: documents that are texts still, and among the payloads where they are `bare`,
        with what has no place in them."""
        if len(bare):
            texts = replaced(texts, bare.tolist(), payloads.take(bare).array().cast(RAW))
        found = self._plain.read(Payloads.of(texts.cast(pa.binary())))
        count, misfits = len(self._kind), dict[int, list[Misfit]]()
        documents = pa.StructArray.from_arrays(
            found.column.flatten()[:count],
            fields=list(found.column.type)[:count],
            mask=found.column.is_null(),
        )
        read = self._by_schema(schemas, documents, misfits)
        assert found.rescued is not None
        left = found.rescued.to_pylist()
        for row, values in misfits.items():
            left[row] = with_misfits(left[row], values)
        bad = {**found.bad, **why}
        return null_where_bad(read.column, bad, pa.array(left, pa.string()))

    def _by_schema(
        self, schemas: pa.Array, documents: pa.StructArray, misfits: dict[int, list[Misfit]] | None
    ) -> ReadValues:
        """The documents, each of which means what its schema says; usually there is one schema, and
        of several the meaning is the same. What does not mean what its column is makes its row bad,
        or is one of `misfits`."""
        encoded = schemas.dictionary_encode()
        numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        # By what they say: two of the same meaning are equal as texts, and cannot be hashed.
        said: dict[str, int] = {}
        meanings: list[Meaning] = []
        which = []
        for text in (*encoded.dictionary.to_pylist(), ""):
            meaning = self._meaning(text)
            number = said.setdefault(repr(meaning), len(meanings))
            if number == len(meanings):
                meanings.append(meaning)
            which.append(number)
        numbers = np.array(which)[numbers]
        groups: list[Group] = []
        # Of no rows there is a group too.
        for number in np.unique(numbers).tolist() or [0]:
            rows = np.flatnonzero(numbers == number)
            own = documents if len(rows) == len(documents) else documents.take(pa.array(rows))
            unfit: list[Unfit] = []
            column = _converted(own, self._kind, meanings[number], (), unfit)
            bad: dict[int, str] = {}
            for row, path, text, value in unfit:
                if misfits is None:
                    bad.setdefault(row, f"field {'.'.join(path)}: {text}")
                else:
                    misfits.setdefault(int(rows[row]), []).append((path, value))
            groups.append(Group(rows, ReadValues(column, bad)))
        if len(groups) == 1:
            return groups[0].values
        return together(groups, len(documents), self.type, rescues=False)

    def _meaning(self, schema: str) -> Meaning:
        if schema not in self._meanings:
            if len(self._meanings) >= _MEANINGS_MAX:
                self._meanings.clear()
            self._meanings[schema] = meaning_of(json.loads(schema)) if schema else _NOTHING
            self._tell_of_others(self._meanings[schema])
        return self._meanings[schema]

    def _tell_of_others(self, meaning: Meaning) -> None:
        """Of columns that a captured table got since the query began."""
        kind = self._kind
        if self._rescues:
            return
        if self._row:
            kind, meaning = kind.field(self._row).type, meaning.fields.get(self._row, _NOTHING)
        tell("records have", tuple(fields_beyond(_shape(meaning), kind)))


def _flags(column: pa.Array) -> Flags:
    found: Flags = column.to_numpy(zero_copy_only=False)
    return found


def null_where_bad(
    column: pa.Array, why: Mapping[int, str], rescued: pa.StringArray | None = None
) -> ReadValues:
    """A column and why some of its rows, which are to be null, are bad."""
    rows = sorted(why)
    if rows:
        column = replaced(column, rows, pa.nulls(len(rows), column.type))
    return ReadValues(column, {row: why[row] for row in rows}, rescued)


def _converted(
    column: pa.Array,
    kind: pa.DataType,
    meaning: Meaning,
    path: tuple[str, ...],
    unfit: list[Unfit],
) -> pa.Array:
    """What was read as JSON, as a type; of values that are `unfit` it says why."""
    if pa.types.is_struct(kind):
        children = [
            _converted(
                child, each.type, meaning.fields.get(each.name, _NOTHING), (*path, each.name), unfit
            )
            for child, each in zip(column.flatten(), kind, strict=True)
        ]  # fmt: skip
        fields = list(shown(kind))
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
    if column.type == RAW:
        texts = column
        column, why = read_column(texts, kind, meaning if meaning != _NOTHING else None)
        unfit += [(row, path, text, texts[row].as_py()) for row, text in why.items()]
    return column.cast(shown(kind))


def _written(kind: pa.DataType) -> pa.DataType:
    """The type as JSON is read: what may be written otherwise than `from_json` would have it is
    left as it is."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_written(each.type)) for each in kind])
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return RAW if is_time or pa.types.is_decimal(kind) or kind == DIGITS else kind


def shown(kind: pa.DataType) -> pa.DataType:
    """The type of a column."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(shown(each.type)) for each in kind])
    return pa.string() if kind == DIGITS else in_utc(kind)


def _shape(meaning: Meaning) -> pa.DataType:
    """The fields that a schema names, as a type; null for what has none."""
    fields = [(name, _shape(inner)) for name, inner in meaning.fields.items()]
    return pa.struct(fields) if fields else pa.null()


def meaning_of(schema: Any) -> Meaning:
    """What a field means, by a schema as Kafka Connect's converter writes it."""
    if not isinstance(schema, dict):
        return _NOTHING
    parameters = schema.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    fields = schema.get("fields")
    named = {
        each["field"]: meaning_of(each)
        for each in (fields if isinstance(fields, list) else ())
        if isinstance(each, dict) and isinstance(each.get("field"), str)
    }
    name = schema.get("name")
    text = str(scale)[:_SCALE_DIGITS]
    plain = text.removeprefix("-").isdecimal()
    return Meaning(name if isinstance(name, str) else "", int(text) if plain else None, named)
