"""Rows as Kafka Connect's JSON converter writes them, with their schema and without."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from keyrange.formats.connect.decoder import ConnectDecoder
from keyrange.formats.payloads import Payloads, ReadValues

ROW = pa.struct([("id", pa.int64()), ("payload", pa.string())])
NESTED = pa.struct([("id", pa.int64()), ("payload", pa.struct([("id", pa.int64())]))])
PLAIN = pa.struct([("id", pa.int64())])
SCHEMA = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}


def read(kind: pa.StructType, *documents: Any, rescues: bool = False) -> ReadValues:
    payloads = pa.array([json.dumps(each).encode() for each in documents])
    return ConnectDecoder(kind, rescues=rescues).read(Payloads.of(payloads))


@pytest.mark.parametrize("rescues", [False, True])
@pytest.mark.parametrize(
    ("kind", "document", "row"),
    [
        (ROW, {"id": 1, "payload": "x"}, {"id": 1, "payload": "x"}),
        (ROW, {"id": 1, "payload": None}, {"id": 1, "payload": None}),
        (ROW, {"schema": SCHEMA, "payload": {"id": 5, "payload": "y"}}, {"id": 5, "payload": "y"}),
        (NESTED, {"id": 1, "payload": {"id": 7}}, {"id": 1, "payload": {"id": 7}}),
        (PLAIN, {"id": 1}, {"id": 1}),
        (PLAIN, {"schema": None, "payload": {"id": 2}}, {"id": 2}),
        (PLAIN, {"schema": SCHEMA, "payload": {"id": 3}}, {"id": 3}),
        (PLAIN, {"schema": SCHEMA, "payload": None}, None),
    ],
)
def test_a_column_called_payload_is_no_envelope(
    kind: pa.StructType, document: Any, row: Any, rescues: bool
) -> None:
    found = read(kind, document, rescues=rescues)
    assert (found.column.to_pylist(), found.bad) == ([row], {})


def written(name: str, value: Any, **more: Any) -> dict[str, Any]:
    field = {"field": "v", "type": "int64", "name": name, **more}
    return {"schema": {"type": "struct", "fields": [field]}, "payload": {"v": value}}


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize("value", [12.34, base64.b64encode((1234).to_bytes(2, "big")).decode()])
@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(20, 4)])
def test_a_decimal_is_bytes_or_a_number(kind: pa.DataType, value: Any) -> None:
    document = written(DECIMAL, value, parameters={"scale": "2"})
    found = read(pa.struct([("v", kind)]), document)
    assert found.column.to_pylist() == [{"v": Decimal("12.34")}]


@pytest.mark.parametrize(
    ("name", "value", "day"),
    [
        ("io.debezium.time.Date", 19_737, date(2024, 1, 15)),
        ("", 19_737, date(2024, 1, 15)),
        ("io.debezium.time.Timestamp", 1_705_276_800_000, date(2024, 1, 15)),
        ("io.debezium.time.Timestamp", 86_399_999, date(1970, 1, 1)),
        ("io.debezium.time.MicroTimestamp", -1, date(1969, 12, 31)),
        ("io.debezium.time.NanoTimestamp", 86_400_000_000_000, date(1970, 1, 2)),
        ("io.debezium.time.Year", 2024, None),
        ("io.debezium.time.Time", 1_000, None),
    ],
)
def test_a_number_is_the_day_that_its_schema_means(name: str, value: int, day: Any) -> None:
    found = read(pa.struct([("v", pa.date32())]), written(name, value))
    assert found.column.to_pylist() == ([{"v": day}] if day else [None])
    assert bool(found.bad) == (day is None)


def test_a_date_is_the_first_moment_of_its_day() -> None:
    found = read(pa.struct([("v", pa.timestamp("us"))]), written("io.debezium.time.Date", 19_737))
    assert found.column.to_pylist() == [{"v": datetime(2024, 1, 15)}]
