"""Changes as Debezium writes them, with schemas and without."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from keyrange.formats.connect import decoder
from keyrange.formats.debezium.format import FORMAT
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.ddl import parse_ddl
from keyrange.model.value_forms import ReadSettings, Schema

DDL = "id bigint, name string, day date, at timestamp, price decimal(9,2), tags array<string>"
SCHEMA = Schema(json.dumps(parse_ddl(DDL)))
NAMES = {
    "day": "io.debezium.time.Date",
    "at": "io.debezium.time.MicroTimestamp",
    "price": "org.apache.kafka.connect.data.Decimal",
}
NOON = 1_720_000_000_123_456


def connect_schema(**names: str | None) -> dict[str, Any]:
    columns = [
        {"field": field, "type": "any"}
        | ({"name": name} if name else {})
        | ({"parameters": {"scale": "2"}} if name and name.endswith("Decimal") else {})
        for field, name in ({"id": None, "name": None} | NAMES | names).items()
    ]
    sides = [{"type": "struct", "fields": columns, "field": side} for side in ("before", "after")]
    return {"type": "struct", "fields": [*sides, {"type": "string", "field": "op"}]}


def base64_of(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()


def row(**changed: Any) -> dict[str, Any]:
    return {"id": 7, "name": "n", "day": 19723, "at": NOON, "price": base64_of(-1250)} | changed


def change(op: str = "c", schema: Any = None, **sides: Any) -> bytes:
    payload = {"before": None, "after": None, "source": {"db": "shop"}, "op": op, "ts_ms": 5}
    document = payload | sides
    return json.dumps({"schema": schema, "payload": document} if schema else document).encode()


def read(*values: bytes | None) -> ReadValues:
    decoder = FORMAT.decoder(SCHEMA, SCHEMA, ReadSettings())
    found = decoder.read(Payloads.of(pa.array(values, pa.binary())))
    found.column.validate(full=True)
    assert found.column.type == decoder.type == FORMAT.type_of(SCHEMA, ReadSettings())
    return found


MICROS = datetime(2024, 7, 3, 9, 46, 40, 123_456, UTC)
MILLIS = MICROS.replace(microsecond=123_000)
WANTED = {
    "id": 7,
    "name": "n",
    "day": date(2024, 1, 1),
    "at": MICROS,
    "price": Decimal("-12.50"),
    "tags": None,
}


def test_changes_with_their_schema() -> None:
    values = [
        change("c", connect_schema(), after=row()),
        change("u", connect_schema(), before=row(name="o"), after=row()),
        change("d", connect_schema(), before=row()),
        None,
    ]
    found = read(*values)
    assert found.bad == {}
    assert found.column.to_pylist() == [
        {"before": None, "after": WANTED, "op": "c", "ts_ms": 5},
        {"before": WANTED | {"name": "o"}, "after": WANTED, "op": "u", "ts_ms": 5},
        {"before": WANTED, "after": None, "op": "d", "ts_ms": 5},
        None,
    ]


@pytest.mark.parametrize(
    ("name", "written", "wanted"),
    [
        ("io.debezium.time.Timestamp", NOON // 1000, MILLIS),
        ("org.apache.kafka.connect.data.Timestamp", NOON // 1000, MILLIS),
        ("io.debezium.time.NanoTimestamp", NOON * 1000 + 7, MICROS),
        ("io.debezium.time.ZonedTimestamp", "2024-07-03T09:46:40.123456Z", MICROS),
        ("io.debezium.time.IsoTimestamp", "2024-07-03T11:46:40.123456+02:00", MICROS),
    ],
)
def test_a_schema_says_the_unit_of_times(name: str, written: Any, wanted: datetime) -> None:
    schema = connect_schema(at=name)
    found = read(*(change("c", schema, after=row(at=at)) for at in (written, None, written)))
    assert found.bad == {}
    assert [each["after"]["at"] for each in found.column.to_pylist()] == [wanted, None, wanted]


def test_schemas_change_from_record_to_record() -> None:
    micros, millis = connect_schema(), connect_schema(at="io.debezium.time.Timestamp")
    both = change("c", micros, after=row()), change("c", millis, after=row(at=NOON // 1000))
    bare = change("c", after=row(at=None, price=None))
    found = read(*both, bare, *both)
    assert found.bad == {}
    times = [each["after"]["at"] for each in found.column.to_pylist()]
    assert times == [MICROS, MILLIS, None, MICROS, MILLIS]


def test_a_column_that_came_later_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    more = connect_schema(came_later=None)
    for _ in range(2):
        found = read(change("c", more, after=row(came_later=1)), change("c", connect_schema()))
        assert found.bad == {}
    [said] = caplog.messages
    assert "fields that no column takes, and they are dropped: 'came_later'." in said


def test_without_a_schema_what_is_clear_is_read() -> None:
    clear = row(at="2024-07-03T09:46:40.123456Z", price="-12.5")
    found = read(change("r", after=clear), change("r", after=clear | {"price": -12.5}))
    assert found.bad == {}
    assert [each["after"] for each in found.column.to_pylist()] == [WANTED] * 2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (change("c", after=row(price=None)), "field after.at: a number for a time, and no schema"),
        (change("d", before=row(at=None)), "field before.price: a text that is no number, and no"),
        (change("c", connect_schema(), after=row(day="x")), "after.day: it is no date32"),
        (change("c", connect_schema(), after=row(day=2**40)), "after.day: it is no date32"),
        (change("c", connect_schema(), after=row(price="!")), "after.price: it is no decimal"),
        (change("c", connect_schema(), after=row(price=base64_of(10**9 + 1))), "after.price: it"),
        (change("c", connect_schema(), after=row(id="x")), "payload.after.id: a string is"),
        (b'{"id": 7}', "no envelope of Debezium: it has no op"),
        (b"{", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_unclear_or_does_not_fit_is_bad(value: bytes, why: str) -> None:
    good = change("c", connect_schema(), after=row())
    found = read(good, value, good)
    assert [*found.bad] == [1]
    assert why in next(iter(found.bad.values()))
    assert [each and each["after"]["id"] for each in found.column.to_pylist()] == [7, None, 7]


def test_a_decimal_has_a_scale_of_its_own() -> None:
    schema = connect_schema(price="io.debezium.data.VariableScaleDecimal")
    price = {"scale": 1, "value": base64_of(-125)}
    found = read(change("c", schema, after=row(price=price)))
    assert found.column[0]["after"]["price"].as_py() == Decimal("-12.50")


def of_scale(scale: int | str, unscaled: str = "AQ==", variable: bool = False) -> bytes:
    """A change of a row whose price is 1 at this scale."""
    if variable:
        schema = connect_schema(price="io.debezium.data.VariableScaleDecimal")
        return change(schema=schema, after=row(price={"scale": scale, "value": unscaled}))
    schema = connect_schema()
    for side in schema["fields"][:2]:
        [price] = [each for each in side["fields"] if each["field"] == "price"]
        price["parameters"] = {"scale": str(scale)}
    return change(schema=schema, after=row(price=unscaled))


@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize(
    "scale", [20, -8, 77, -77, 16_384, 2**31 - 1, -(2**31), 10**30, "9" * 5_000, " 2", None]
)
def test_a_scale_that_no_decimal_has_makes_its_row_bad_alone(scale: Any, variable: bool) -> None:
    """Arrow takes any for a type, and crashes, or reads what is none of its numbers."""
    found = read(of_scale(scale, variable=variable), of_scale(2, variable=variable))
    assert [*found.bad] == [0]
    assert found.column[1].as_py()["after"]["price"] == Decimal("0.01")


def test_a_schema_in_each_record_costs_what_one_costs() -> None:
    def change_of(n: int) -> bytes:
        return change(schema=connect_schema() | {"version": n}, after=row(id=n))

    calls: list[None] = []
    converted = decoder._converted

    def counted(*given: Any) -> pa.Array:
        calls.append(None)
        return converted(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "_converted", counted)
        found = read(*map(change_of, range(1_000)))
    assert [each["after"]["id"] for each in found.column.to_pylist()] == [*range(1_000)]
    # One for each column of the only meaning.
    assert len(calls) < 50


def test_zeros_behind_the_point_are_no_digits_that_are_lost() -> None:
    zeros = base64.b64encode((10**100).to_bytes(48, "big")).decode()
    [one] = read(of_scale(100, zeros, variable=True)).column.to_pylist()
    assert one["after"]["price"] == Decimal("1.00")
