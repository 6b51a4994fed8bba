"""Times of columns as Python's, against Arrow's own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.values.python_rows import plain_values

_DAY_US = 86_400 * 10**6
_BEGIN_DAY, _END_DAY = -719_162, 2_932_897


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str
)
@given(data=st.data())
def test_a_time_is_what_arrow_says(data: st.DataObject, kind: pa.DataType) -> None:
    by_day = 1 if kind == pa.date32() else _DAY_US
    numbers = st.integers(_BEGIN_DAY * by_day, _END_DAY * by_day - 1)
    values = data.draw(st.lists(st.none() | numbers, max_size=6))
    column = pa.array(values, f"int{kind.bit_width}").view(kind).slice(data.draw(st.integers(0, 2)))
    found = plain_values(column)
    assert found == column.to_pylist()
    assert [type(each) for each in found] == [type(each) for each in column.to_pylist()]
    # Equal ones may be of other zones.
    assert list(map(repr, found)) == list(map(repr, column.to_pylist()))


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
@pytest.mark.parametrize("day", [_BEGIN_DAY - 1, _END_DAY])
def test_one_that_python_has_none_for_is_refused(kind: pa.DataType, day: int) -> None:
    number = day if kind == pa.date32() else day * _DAY_US
    with pytest.raises(ValueError, match="years"):
        plain_values(pa.array([0, number], f"int{kind.bit_width}").view(kind))
