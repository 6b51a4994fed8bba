"""Columns as rows of Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from keyrange.values.python_rows import ValueRow, python_values

PLACE = pa.struct([("city", pa.string()), ("count", pa.int64()), ("_id", pa.int64())])
ORDER = pa.struct(
    [
        ("price", pa.float64()),
        ("place", PLACE),
        ("tags", pa.list_(pa.string())),
        ("places", pa.list_(PLACE)),
        ("more", pa.map_(pa.string(), PLACE)),
    ]
)


def plain(value: Any) -> Any:
    """What `to_pylist` has of the same."""
    if isinstance(value, ValueRow):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return [(key, plain(each)) for key, each in value.items()]
    return value


places = st.none() | st.fixed_dictionaries(
    {"city": st.none() | st.text(max_size=3), "count": st.integers(0, 9), "_id": st.none()}
)
orders = st.none() | st.fixed_dictionaries(
    {
        "price": st.none() | st.floats(allow_nan=False),
        "place": places,
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "places": st.none() | st.lists(places, max_size=3),
        "more": st.none() | st.dictionaries(st.text(max_size=2), places, max_size=3),
    }
)


@given(st.lists(orders, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_rows_are_what_arrow_has(rows: list[Any], begin: int, count: int) -> None:
    column = pa.array(rows, ORDER).slice(min(begin, len(rows)), count)
    assert plain(python_values(column)) == column.to_pylist()


def test_fields_are_attributes_and_items() -> None:
    (order,) = python_values(
        pa.array([{"price": 2.5, "place": {"city": "Bern", "count": 3, "_id": 7}}], ORDER)
    )
    # The names of a tuple's own methods are fields first.
    assert (order.price, order.place.city, order.place.count) == (2.5, "Bern", 3)
    assert (order["price"], order[0], order.place["_id"]) == (2.5, 2.5, 7)
    assert order.__fields__ == ("price", "place", "tags", "places", "more")
    assert cloudpickle.loads(cloudpickle.dumps(order)) == order
    with pytest.raises(AttributeError):
        _ = order.place._id
    with pytest.raises(KeyError):
        _ = order["prize"]


def test_a_row_shows_no_value() -> None:
    (order,) = python_values(pa.array([{"price": 2.5}], ORDER))
    assert repr(order) == "ValueRow(price, place, tags, places, more)"
