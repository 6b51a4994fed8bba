"""Columns written as JSON objects: Python's reader gets what the columns have, and so does
keyrange's own."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.formats.json.decoder import JsonDecoder
from keyrange.formats.json.encoder import JsonEncoder
from keyrange.formats.json.written_times import quoted_times
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import UnfitSchema

TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
# Of each type its values, and what Python's reader makes of one that was written.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], Any]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1), None),
    (pa.int8(), st.integers(-128, 127), None),
    (pa.bool_(), st.booleans(), None),
    (pa.string(), TEXTS, None),
    (pa.float64(), st.floats(), lambda value: value if math.isfinite(value) else _word(value)),
    (pa.binary(), st.binary(max_size=5), lambda value: base64.b64encode(value).decode()),
    (pa.date32(), st.dates(date(1, 1, 1)), date.isoformat),
    (
        pa.timestamp("us", "UTC"),
        TIMES,
        lambda value: value.strftime("%Y").zfill(4) + value.strftime("-%m-%dT%H:%M:%S.%fZ"),
    ),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3), float),
]


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any], Any]:
    """A type, its values with nulls, and what is read of one."""
    shape = draw(st.sampled_from(("plain", "plain", "list", "struct", "map"))) if depth else "plain"
    if shape == "plain":
        kind, values, read = draw(st.sampled_from(KINDS))
        return kind, st.none() | values, lambda value: _read(value, read)
    kind, values, read = draw(fields(depth - 1))
    if shape == "list":
        items = st.none() | st.lists(values, max_size=3)
        return pa.list_(kind), items, lambda value: _read(value, lambda all_: [*map(read, all_)])
    if shape == "map":
        entries = st.none() | st.dictionaries(TEXTS, values, max_size=2).map(lambda e: [*e.items()])
        return (
            pa.map_(pa.string(), kind),
            entries,
            lambda value: _read(value, lambda all_: {k: read(v) for k, v in all_}),
        )
    name = draw(TEXTS)
    struct = st.none() | values.map(lambda value: {name: value})
    return (
        pa.struct([(name, kind)]),
        struct,
        lambda value: _read(value, lambda own: _without_nulls({name: read(own[name])})),
    )


def _read(value: Any, read: Any) -> Any:
    return value if value is None or read is None else read(value)


def _without_nulls(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


@given(st.data())
def test_pythons_reader_gets_what_was_written(data: st.DataObject) -> None:
    names = data.draw(st.lists(TEXTS, max_size=4, unique=True))
    count = data.draw(st.integers(0, 5))
    before = data.draw(st.sampled_from((0, 2)))
    columns, wanted = [], [dict[str, Any]() for _ in range(count)]
    for name in names:
        kind, values, read = data.draw(fields())
        made = data.draw(st.lists(values, min_size=count, max_size=count))
        columns.append(pa.array([*made[:1] * before, *made], kind))
        for row, value in zip(wanted, made, strict=True):
            row[name] = read(value)
    schema = pa.schema([(name, each.type) for name, each in zip(names, columns, strict=True)])
    rows = pa.RecordBatch.from_arrays(columns, schema=schema) if names else _no_columns(count)
    if names and count:
        rows = rows.slice(before)
    texts = objects(rows).to_pylist()
    assert [json.loads(text) for text in texts] == [*map(_without_nulls, wanted)]


def objects(rows: pa.RecordBatch) -> pa.Array:
    column = rows.to_struct_array()
    return JsonEncoder(column.type).write(column).payloads


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": pa.nulls(rows)})


@given(
    st.lists(st.none() | st.integers(-(2**55), 2**55) | st.integers(-(2**62), 2**62), max_size=9),
    st.sampled_from((None, "UTC", "Europe/Berlin")),
    st.integers(0, 3),
)
def test_times_are_those_of_arrows_own_format(
    micros: list[int | None], zone: str | None, first: int
) -> None:
    column = pa.array(micros, pa.timestamp("us", zone)).slice(min(first, len(micros)))
    at = column.cast(pa.timestamp("us", zone and "UTC"))
    texts = pc.strftime(at, format="%Y-%m-%dT%H:%M:%S").to_pylist()
    wanted = [each and f'"{each}{"Z" if zone else ""}"' for each in texts]
    assert quoted_times(column).to_pylist() == wanted


def test_keyranges_own_reader_gets_what_was_written() -> None:
    kind = pa.struct(
        [
            ("n", pa.int64()),
            ("text", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("ratio", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ]
    )
    rows: list[Any] = [
        {
            "n": -(2**63),
            "text": 'a"\\\n\u2028é',
            "price": Decimal("-1.50"),
            "ratio": 0.1,
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            "day": date(2024, 2, 29),
            "tags": ["x", None],
            "place": {"city": None, "zip": 5},
        },
        dict.fromkeys(kind.names),
        {**dict.fromkeys(kind.names), "ratio": 1e300, "tags": []},
    ]
    written = JsonEncoder(kind).write(pa.array(rows, kind)).payloads
    read = JsonDecoder(kind, False).read(Payloads.of(written.cast(pa.binary())))
    assert read.column.to_pylist() == rows


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.duration("us"), "duration"),
        (pa.list_(pa.time32("s")), "list"),
        (pa.map_(pa.int32(), pa.string()), "map"),
    ],
)
def test_columns_of_which_no_json_is_made_are_named(kind: pa.DataType, said: str) -> None:
    with pytest.raises(UnfitSchema, match=f"column a is {said}"):
        JsonEncoder(pa.struct([("a", kind)]))
