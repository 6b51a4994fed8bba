"""The extremes of many slots at once, against Python's own of one slot after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.windowing.slots import Slots
from keyrange.windowing.sums import extremes


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _floats(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    # NaN among few numbers, as it seldom is among all.
    return st.sampled_from([math.nan, 0.0, 1.5, -math.inf]) | st.floats(width=width)


def _in_order(value: Any) -> tuple[bool, Any]:
    """NaN is greater than all others."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _equal(one: Any, other: Any) -> bool:
    return one == other or (one is not None and other is not None and one != one and other != other)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), _integers(8)),
        (pa.int32(), _integers(32)),
        (pa.int64(), _integers(64)),
        (pa.float32(), _floats(32)),
        (pa.float64(), _floats(64)),
        (pa.date32(), _integers(32)),
        (pa.timestamp("us", "UTC"), _integers(64)),
    ],
    ids=str,
)
@pytest.mark.parametrize("choose", [min, max])
@given(data=st.data())
def test_each_slot_has_its_extreme(
    data: st.DataObject,
    kind: pa.DataType,
    values: st.SearchStrategy[Any],
    choose: Callable[..., Any],
) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), st.none() | values), max_size=12))
    slots = Slots(np.array([slot for slot, _ in rows], np.int64), 4)
    plain = pa.array([value for _, value in rows], pa.int64() if _is_time(kind) else kind)
    given_ = plain.cast(f"int{kind.bit_width}").view(kind) if _is_time(kind) else plain
    found = extremes(given_, slots, is_greatest=choose is max)
    assert found.type == kind
    numbers = found.view(f"int{kind.bit_width}") if _is_time(kind) else found
    for slot, value in enumerate(numbers.to_pylist()):
        own = [each for at, each in zip(slots.of, plain.to_pylist(), strict=True) if at == slot]
        known = [each for each in own if each is not None]
        assert _equal(value, choose(known, key=_in_order, default=None)), (slot, own)


def _is_time(kind: pa.DataType) -> bool:
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind))
