"""The columns that records of Kafka Connect bring with them, and Debezium's own examples."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from captured.source_table import DDL, Source, connect_type, json_with_schemas
from keyrange.formats.connect.format import FORMAT as CONNECT
from keyrange.formats.debezium.format import FORMAT as DEBEZIUM
from keyrange.formats.payloads import Payloads
from keyrange.model.ddl import parse_ddl
from keyrange.model.value_forms import ReadSettings, UnfitSchema

SETTINGS = ReadSettings()


def test_a_record_of_a_table_says_its_columns() -> None:
    for database in ("mysql", "postgres"):
        [(key, value)] = Source(database, json_with_schemas).insert(
            dict.fromkeys(each.split()[0] for each in DDL.split(", ")) | {"id": 1}
        )
        assert key is not None
        assert value is not None
        found = DEBEZIUM.said_by(value)
        assert found is not None
        assert json.loads(found.text) == parse_ddl(DDL)
        own = CONNECT.said_by(key)
        assert own is not None
        assert json.loads(own.text) == parse_ddl("id bigint")


def document(value: Any, **fields: Any) -> bytes:
    told = [{"field": name, **kind} for name, kind in fields.items()]
    return json.dumps({"schema": {"type": "struct", "fields": told}, "payload": value}).encode()


def decimal(precision: str | None, scale: str) -> dict[str, Any]:
    said = {"connect.decimal.precision": precision} if precision else {}
    name = "org.apache.kafka.connect.data.Decimal"
    return connect_type("bytes", name, parameters={"scale": scale} | said)


TEXT = {"type": "string", "optional": True}
MILLIS = connect_type("int64", "io.debezium.time.Timestamp")
NUMBER = base64.b64encode(b"\xfb\x1e").decode()


@pytest.mark.parametrize(
    ("kind", "written", "column", "value"),
    [
        ({"type": "int8"}, 1, pa.int8(), 1),
        ({"type": "int16"}, 1, pa.int16(), 1),
        ({"type": "float32"}, 1.5, pa.float32(), 1.5),
        ({"type": "float"}, 1.5, pa.float32(), 1.5),
        ({"type": "double"}, 1.5, pa.float64(), 1.5),
        ({"type": "boolean"}, True, pa.bool_(), True),
        (decimal("9", "2"), NUMBER, pa.decimal128(9, 2), Decimal("-12.50")),
        (decimal(None, "2"), NUMBER, pa.decimal128(38, 2), Decimal("-12.50")),
        (decimal("65", "2"), NUMBER, pa.string(), "-12.50"),
        (decimal("9", "-1"), NUMBER, pa.string(), "-12500"),
        (
            connect_type("struct", "io.debezium.data.VariableScaleDecimal"),
            {"scale": 3, "value": NUMBER},
            pa.string(),
            "-1.250",
        ),
        (connect_type("int64", "io.debezium.time.MicroTime"), 5, pa.int64(), 5),
        (connect_type("string", "io.debezium.time.ZonedTime"), "5Z", pa.string(), "5Z"),
        (
            connect_type("int64", "io.debezium.time.NanoTimestamp"),
            1_001,
            pa.timestamp("us"),
            datetime(1970, 1, 1, 0, 0, 0, 1),
        ),
        (
            connect_type("int64", "org.apache.kafka.connect.data.Timestamp"),
            5,
            pa.timestamp("us", "UTC"),
            datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC),
        ),
        (
            {"type": "array", "items": connect_type("int32", "io.debezium.time.Date")},
            [1, None],
            pa.list_(pa.field("element", pa.int32())),
            [1, None],
        ),
        ({"type": "map", "keys": TEXT, "values": TEXT}, {"a": "b"}, None, [("a", "b")]),
        (
            {"type": "map", "keys": {"type": "int32"}, "values": TEXT},
            [[1, "b"]],
            pa.string(),
            '[[1,"b"]]',
        ),
        (
            {"type": "struct", "fields": [{"field": "at", **MILLIS}]},
            {"at": 7},
            pa.struct([("at", pa.timestamp("us"))]),
            {"at": datetime(1970, 1, 1, 0, 0, 0, 7_000)},
        ),
    ],
)  # fmt: skip
def test_types_by_their_names(kind: Any, written: Any, column: Any, value: Any) -> None:
    payload = document({"a": written, "b": None}, a=kind, b=kind)
    schema = CONNECT.said_by(payload)
    assert schema is not None
    found = CONNECT.decoder(schema, schema, SETTINGS).read(Payloads.of(pa.array([payload])))
    assert found.bad == {}
    assert found.column.type == CONNECT.type_of(schema, SETTINGS)
    assert found.column.type.field("a").type == (column or found.column.type.field("a").type)
    assert found.column[0]["a"].as_py() == value
    assert found.column[0]["b"].as_py() is None


@pytest.mark.parametrize("payload", [b"{", b'{"id": 1}', b"[]", b'{"schema": null, "payload": 1}'])
def test_what_brings_no_schema(payload: bytes) -> None:
    assert CONNECT.said_by(payload) is None
    assert DEBEZIUM.said_by(payload) is None


def within(kind: dict[str, Any], depth: int) -> dict[str, Any]:
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


NO_STRUCT: dict[str, Any] = {"type": "struct", "fields": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"a": decimal("x", "2")},
        {"a": decimal("9", "x")},
        {"a": decimal("9", "9" * 5_000)},
        {"a": decimal("9", "2") | {"parameters": [1]}},
        {"a": {"type": ["int32"]}},
        {"a": {"type": "int32", "name": ["x"]}},
        {"a": {"type": "int32", "field": {"b": 1}}},
        {"a": {"type": "int32", "field": None}},
        {"\ud800": {"type": "int32"}},
        {"a": NO_STRUCT},
        {"a": {"type": "array", "items": NO_STRUCT}},
        {"a": {"type": "array"}},
        {"a": {"type": "map", "keys": {"type": "string"}}},
        {"a": within({"type": "int32"}, 51)},
        {"a": within({"type": "int32"}, 300)},
    ],
)
def test_what_kafka_connect_never_writes_is_no_schema(fields: dict[str, Any]) -> None:
    told = [{"field": name, **kind} for name, kind in fields.items()]
    for schema in ({"fields": told}, {"type": "struct", "fields": told}):
        assert CONNECT.said_by(json.dumps({"schema": schema}).encode()) is None
        after = {"type": "struct", "fields": [{"field": "after", **schema}]}
        assert DEBEZIUM.said_by(json.dumps({"schema": after}).encode()) is None


@pytest.mark.parametrize("fields", [7, "ab", {"a": 1}, [7], [{}], [{"type": "int32"}]])
def test_fields_that_are_none(fields: Any) -> None:
    document = {"schema": {"type": "struct", "fields": fields}, "payload": {}}
    assert CONNECT.said_by(json.dumps(document).encode()) is None
    assert DEBEZIUM.said_by(json.dumps(document).encode()) is None


def test_what_is_nested_as_deep_as_columns_are() -> None:
    found = CONNECT.said_by(document({}, a=within({"type": "int32"}, 49)))
    assert found is not None
    assert pa.types.is_list(CONNECT.type_of(found, SETTINGS).field("a").type)


def test_a_decimal_of_no_digits_is_written_as_text() -> None:
    found = CONNECT.said_by(document({}, a=decimal("0", "0")))
    assert found is not None
    assert CONNECT.type_of(found, SETTINGS).field("a").type == pa.string()


def test_what_is_not_known() -> None:
    with pytest.raises(UnfitSchema, match="a struct has no fields"):
        CONNECT.said_by(document({}, a={"type": "struct", "fields": []}))
    with pytest.raises(UnfitSchema, match='not known: "int128"'):
        CONNECT.said_by(document({}, a={"type": "int128"}))
    inner = {"type": "struct", "fields": [{"field": "b", **decimal("65", "2")}]}
    with pytest.raises(UnfitSchema, match="is in a struct; set the connector's decimal"):
        CONNECT.said_by(document({}, a=inner))


# The examples of Debezium's documentation of its Postgres connector, without what is in `source`.
INT, STRING = {"type": "int32", "optional": False}, {"type": "string", "optional": False}
CUSTOMER = [
    {"field": "id", **INT},
    *({"field": name, **STRING} for name in ("first_name", "last_name", "email")),
]
VALUE_SCHEMA = {
    "type": "struct",
    "fields": [
        *(
            {
                "type": "struct",
                "fields": CUSTOMER,
                "optional": True,
                "name": "PostgreSQL_server.inventory.customers.Value",
                "field": side,
            }
            for side in ("before", "after")
        ),
        {"type": "struct", "fields": [{"field": "lsn", "type": "int64"}], "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
    "optional": False,
    "name": "PostgreSQL_server.inventory.customers.Envelope",
}
SOURCE = {"connector": "postgresql", "name": "PostgreSQL_server", "lsn": 24023128}
ANNE = {
    "id": 1,
    "first_name": "Anne",
    "last_name": "Kretchmar",
    "email": "annek@noanswer.org",
}
MARIE = ANNE | {"first_name": "Anne Marie"}
EXAMPLES: list[dict[str, Any]] = [
    {"before": None, "after": ANNE, "source": SOURCE, "op": "c", "ts_ms": 1559033904863},
    {"before": {"id": 1}, "after": MARIE, "source": SOURCE, "op": "u", "ts_ms": 1465584025523},
    {"before": {"id": 1}, "after": None, "source": SOURCE, "op": "d", "ts_ms": 1465581902461},
    {"source": SOURCE, "op": "t", "ts_ms": 1559033904961},
    {
        "source": SOURCE,
        "op": "m",
        "ts_ms": 1559033904961,
        "message": {"prefix": "foo", "content": "Ymfy"},
    },
]


def test_debeziums_own_examples() -> None:
    payloads = [json.dumps({"schema": VALUE_SCHEMA, "payload": each}) for each in EXAMPLES]
    schema = DEBEZIUM.said_by(payloads[0].encode())
    assert schema is not None
    decoder = DEBEZIUM.decoder(schema, schema, SETTINGS)
    found = decoder.read(Payloads.of(pa.array([*payloads, None], pa.string()).cast(pa.binary())))
    assert found.bad == {}
    nobody = dict.fromkeys(ANNE)
    assert found.column.to_pylist() == [
        {
            "before": nobody | side if (side := each.get("before")) else None,
            "after": each.get("after"),
            "op": each["op"],
            "ts_ms": each["ts_ms"],
        }
        for each in EXAMPLES
    ] + [None]
