"""`rescuedData` of Kafka Connect's rows and of Debezium's changes: what the columns have no place
for, and nothing else of the envelope."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from captured.source_table import (
    DDL,
    Row,
    Source,
    Written,
    avro_schemas,
    avro_with_ids,
    json_of,
    json_with_schemas,
    json_without_schemas,
)
from keyrange.formats.format import change_format_of, format_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.ddl import parse_ddl
from keyrange.model.value_forms import ReadSettings, Schema

PLAIN, RESCUING = ReadSettings(), ReadSettings(rescues=True)
PREFIX = 5
# Clear texts, which are JSON in all three shapes.
ROW: Row = {
    "name": "n",
    "day": date(2024, 1, 2),
    "at": datetime(2024, 1, 2, 3, 4, 5),
    "seen": datetime(2024, 1, 2, tzinfo=UTC),
    "price": Decimal("12.50"),
    "note": "a note",
    "blob": b"\x00\x01",
    "tags": ["a", None],
    "counts": [1, -1],
}


def ddl(text: str) -> Schema:
    return Schema(json.dumps(parse_ddl(text)))


def without(*names: str) -> str:
    return ", ".join(each for each in DDL.split(", ") if each.split()[0] not in names)


def changes(write: Callable[[Source, Row | None, Row | None], Written]) -> list[bytes]:
    source = Source("mysql", write)
    written = [
        *source.insert({"id": 1, **ROW}),
        *source.update(1, {"note": "another", "name": "m"}),
        *source.delete(1),
    ]
    return [value for _, value in written if value is not None]


def read(form: str, schema: Schema, payloads: list[bytes], settings: ReadSettings) -> ReadValues:
    decoder = format_of(form).decoder(schema, schema, settings)
    return decoder.read(Payloads.of(pa.array(payloads, pa.binary())))


def left_in(found: ReadValues) -> list[Any]:
    assert found.rescued is not None
    return [each and json.loads(each) for each in found.rescued.to_pylist()]


def rows_of(found: ReadValues, count: int) -> ReadValues:
    present = np.ones(count, np.bool_)
    kind = found.column.type
    keys = pa.StructArray.from_arrays([pa.nulls(0, pa.int64())], names=["id"])
    format_ = change_format_of("debezium")
    assert format_.rows_type(kind)
    return format_.rows(found, present, ["id"], lambda _: ReadValues(keys, {}))


@pytest.mark.parametrize("write", [json_with_schemas, json_without_schemas])
def test_columns_that_the_schema_lacks(write: Any) -> None:
    payloads = changes(write)
    narrow = ddl(without("note", "counts", "at", "price", "blob"))
    found = read("debezium", narrow, payloads, RESCUING)
    assert found.bad == {}
    assert found.column == read("debezium", narrow, payloads, PLAIN).column
    inserted, updated, deleted = left_in(found)
    rest = {"at": 1704164645000, "price": "BOI=", "blob": "AAE=", "counts": [1, -1]}
    assert inserted == {"after": rest | {"note": "a note"}}
    assert updated["before"] == inserted["after"]
    assert updated["after"] == rest | {"note": "another"}
    assert deleted == {"before": updated["after"]}
    # Of rows what is left of the row itself.
    assert left_in(rows_of(found, 3)) == [inserted["after"], updated["after"], None]


@pytest.mark.parametrize("write", [json_with_schemas, json_without_schemas])
def test_nothing_is_left_where_all_has_a_column(write: Any) -> None:
    whole = ddl(DDL.replace("timestamp_ntz", "bigint").replace("decimal(9,2)", "string"))
    payloads = changes(write)
    found = read("debezium", whole, payloads, RESCUING)
    assert left_in(found) == [None] * 3
    assert found.column == read("debezium", whole, payloads, PLAIN).column


def test_values_that_do_not_fit_are_null_and_rescued() -> None:
    schema = ddl("id bigint, at timestamp_ntz, price decimal(9,2), n int")
    row = '{"id": 1, "at": 17041646450001, "price": "BOI=", "n": "x", "more": 1.50}'
    payload = f'{{"after": {row}, "op": "c"}}'.encode()
    found = read("debezium", schema, [payload], RESCUING)
    assert found.bad == {}
    assert found.column.to_pylist()[0]["after"] == {"id": 1, "at": None, "price": None, "n": None}
    assert found.rescued is not None
    assert found.rescued.to_pylist() == [
        '{"after":{"n":"x","more":1.50,"at":17041646450001,"price":"BOI="}}'
    ]
    assert left_in(read("connect", schema, [row.encode()], RESCUING))[0]["at"] == 17041646450001
    # What is no envelope, or no JSON, is bad as before.
    none = read("debezium", schema, [b"{}", b"x", payload], RESCUING)
    assert [*none.bad] == [0, 1]
    assert none.column.null_count == 2


def test_rows_of_several_schemas_keep_their_places() -> None:
    def row(kind: str, value: Any) -> bytes:
        at = {"type": "int64", "field": "at", "name": f"io.debezium.time.{kind}"}
        fields = [{"type": "int32", "field": "id"}, at, {"type": "string", "field": "more"}]
        schema = {"type": "struct", "fields": fields}
        payload = {"id": 1, "at": value, "more": kind}
        return json_of({"schema": schema, "payload": payload}) or b""

    payloads = [
        *(row("Timestamp", 1), row("MicroTimestamp", "no time"), row("Timestamp", 2**62)),
        *(b'{"id": 2, "at": 3}', row("MicroTimestamp", 4)),
    ]
    found = read("connect", ddl("id int, at timestamp_ntz"), payloads, RESCUING)
    assert found.bad == {}
    assert [each["at"] and each["at"].microsecond for each in found.column.to_pylist()] == [
        1000,
        None,
        None,
        None,
        4,
    ]
    assert left_in(found) == [
        {"more": "Timestamp"},
        {"more": "MicroTimestamp", "at": "no time"},
        {"more": "Timestamp", "at": 2**62},
        {"at": 3},
        {"more": "MicroTimestamp"},
    ]


def test_avro_of_a_newer_schema() -> None:
    _, envelope = avro_schemas("mysql")
    payloads = [each[PREFIX:] for each in changes(avro_with_ids(1, 2))]
    batch = Payloads.of(pa.array(payloads, pa.binary()))
    text = json.dumps(envelope)
    narrow = json.loads(text)
    row = narrow["fields"][0]["type"][1]
    row["fields"] = [each for each in row["fields"] if each["name"] not in ("note", "counts")]
    format_ = format_of("debezium")
    same = format_.decoder(Schema(text), Schema(text), RESCUING).read(batch)
    assert left_in(same) == [None] * 3
    assert same.column == format_.decoder(Schema(text), Schema(text), PLAIN).read(batch).column
    found = format_.decoder(Schema(json.dumps(narrow)), Schema(text), RESCUING).read(batch)
    assert found.bad == {}
    assert [each["op"] for each in found.column.to_pylist()] == ["c", "u", "d"]
    inserted, updated, deleted = left_in(found)
    assert inserted == {"after": {"note": "a note", "counts": [1, -1]}}
    assert updated["after"]["note"] == "another"
    assert [*deleted] == ["before"]
    assert left_in(rows_of(found, 3))[0] == inserted["after"]
