"""What Kafka Connect's names say of Avro's types, and envelopes whose schemas change."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from captured.source_table import avro_schemas
from keyrange.formats.connect.format import FORMAT as CONNECT
from keyrange.formats.debezium.format import FORMAT as DEBEZIUM
from keyrange.formats.format import Format
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema

SETTINGS = ReadSettings()
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    told = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "Value", "namespace": "s.t", "fields": told}


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def read(
    format_: Format, value: Any, writer: dict[str, Any], reader: dict[str, Any] | None = None
) -> ReadValues:
    body = io.BytesIO()
    # fastavro would write decimals and times itself.
    plain = json.loads(json.dumps(writer).replace('"logicalType"', '"was"'))
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), value)
    schemas = Schema(json.dumps(reader or writer)), Schema(json.dumps(writer))
    decoder = format_.decoder(*schemas, SETTINGS)
    found = decoder.read(Payloads.of(pa.array([None, body.getvalue()], pa.binary())))
    found.column.validate(full=True)
    assert found.column.type == decoder.type == format_.type_of(schemas[0], SETTINGS)
    assert not found.column[0].is_valid
    return found


NOON = datetime(2024, 7, 3, 12, 0, 0, 123_456)
MICROS = 1_720_008_000_123_456
ZONED = "io.debezium.time.ZonedTimestamp"
DATA = "org.apache.kafka.connect.data"
DECIMAL = f"{DATA}.Decimal"


@pytest.mark.parametrize(
    ("kind", "written", "column", "value"),
    [
        (named("int", "io.debezium.time.Date"), 19723, pa.date32(), date(2024, 1, 1)),
        (
            named("long", "io.debezium.time.Timestamp"),
            MICROS // 1000,
            pa.timestamp("us"),
            NOON.replace(microsecond=123_000),
        ),
        (named("long", "io.debezium.time.MicroTimestamp"), MICROS, pa.timestamp("us"), NOON),
        (
            named("long", "io.debezium.time.NanoTimestamp"),
            MICROS * 1000 + 789,
            pa.timestamp("us"),
            NOON,
        ),
        (
            named("long", "io.debezium.time.NanoTimestamp"),
            -1,
            pa.timestamp("us"),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
        ),
        (
            named("string", ZONED),
            "2024-07-03T14:00:00.123456+02:00",
            pa.timestamp("us", "UTC"),
            NOON.replace(tzinfo=UTC),
        ),
        (
            named("string", ZONED),
            "2024-07-03T12:00:00.123456789Z",
            pa.timestamp("us", "UTC"),
            NOON.replace(tzinfo=UTC),
        ),
        (
            named("long", f"{DATA}.Timestamp", logicalType="timestamp-millis"),
            MICROS // 1000,
            pa.timestamp("us", "UTC"),
            NOON.replace(microsecond=123_000, tzinfo=UTC),
        ),
        (
            named("int", f"{DATA}.Date", logicalType="date"),
            0,
            pa.date32(),
            date(1970, 1, 1),
        ),
        (
            named(
                "bytes", DECIMAL, logicalType="decimal", precision=64, scale=2,
                **{"connect.parameters": {"scale": "2"}},
            ),
            b"\xfb\x1e",
            pa.decimal128(38, 2),
            Decimal("-12.50"),
        ),
        (VARIABLE, {"scale": 3, "value": b"\xfb\x1e"}, pa.string(), "-1.250"),
        (VARIABLE, {"scale": -2, "value": b"\x05"}, pa.string(), "500"),
        (named("long", "io.debezium.time.MicroTime"), 7, pa.int64(), 7),
        (named("string", "io.debezium.data.Json"), "{}", pa.string(), "{}"),
        (named("bytes", "io.debezium.data.Bits"), b"\x01", pa.binary(), b"\x01"),
        (named("string", "io.debezium.time.Date"), "x", pa.string(), "x"),
    ],
)  # fmt: skip
def test_types_by_their_names(kind: Any, written: Any, column: pa.DataType, value: Any) -> None:
    schema = record(("a", kind), ("b", ["null", kind if kind is not VARIABLE else "string"]))
    found = read(CONNECT, {"a": written, "b": None}, schema)
    assert found.bad == {}
    assert found.column.type.field("a").type == column
    assert found.column[1]["a"].as_py() == value
    assert found.column[1]["b"].as_py() is None


def test_what_is_no_time_is_bad() -> None:
    found = read(CONNECT, {"a": "noon"}, record(("a", named("string", ZONED))))
    assert [*found.bad] == [1]
    assert "field a: it is no timestamp" in next(iter(found.bad.values()))


def test_records_without_end_are_refused() -> None:
    schema: Any = {"type": "record", "name": "d0", "fields": [{"name": "x", "type": "int"}]}
    for at in range(1, 40):
        fields = [{"name": "x", "type": schema}, {"name": "y", "type": f"d{at - 1}"}]
        schema = {"type": "record", "name": f"d{at}", "fields": fields}
    with pytest.raises(UnfitSchema, match="makes more than 10000 columns"):
        CONNECT.type_of(Schema(json.dumps(schema)), SETTINGS)
    itself = {"type": "record", "name": "d", "fields": [{"name": "x", "type": ["null", "d"]}]}
    with pytest.raises(UnfitSchema, match="record d is in itself"):
        CONNECT.type_of(Schema(json.dumps(itself)), SETTINGS)


def test_columns_that_another_schema_lacks_are_null() -> None:
    """Also such as have no default in the schema: an older row does not say them."""
    older = record(("id", "long"), ("gone", "string"))
    newer = record(("id", "long"), ("added", "int"), ("more", ["string", "null"]))
    found = read(CONNECT, {"id": 1, "gone": "x"}, older, newer)
    assert found.column[1].as_py() == {"id": 1, "added": None, "more": None}


def test_an_envelope_has_the_columns_of_one_in_json() -> None:
    _, envelope = avro_schemas("postgres")
    kind = DEBEZIUM.type_of(Schema(json.dumps(envelope)), SETTINGS)
    assert [each.name for each in kind] == ["before", "after", "op", "ts_ms"]
    key = DEBEZIUM.key_schema(Schema(json.dumps(envelope)), ("id",))
    assert CONNECT.type_of(key, SETTINGS) == pa.struct([("id", pa.int64())])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(("id", "long")), "no envelope of Debezium.*format connect"),
        ("string", "no envelope of Debezium"),
        (avro_schemas("mysql")[0], "no envelope"),
    ],
)
def test_what_is_no_envelope(schema: Any, why: str) -> None:
    with pytest.raises(UnfitSchema, match=why):
        DEBEZIUM.type_of(Schema(json.dumps(schema)), SETTINGS)
