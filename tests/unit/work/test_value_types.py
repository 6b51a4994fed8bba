"""Which values are of a type that a column never takes."""

from __future__ import annotations

import enum
import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from keyrange.work.records import is_of_wrong_type


class Number(enum.IntEnum):
    ONE = 1


POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
BYTE, LONG, DOUBLE = pa.int8(), pa.int64(), pa.float64()
TIMES = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", LONG),
        ("", DOUBLE),
        (b"1", LONG),
        (True, LONG),
        (1, pa.bool_()),
        (1, pa.string()),
        (Number.ONE, pa.string()),
        (1.5, pa.decimal128(10, 2)),
        (Decimal(1), DOUBLE),
        ("2026-01-01", TIMES),
        (date(2026, 1, 1), TIMES),
        (datetime(2026, 1, 1, tzinfo=UTC), LONG),
        (uuid.uuid4(), pa.string()),
        (np.int64(1), pa.string()),
        (1, pa.list_(LONG)),
        ([1, "2"], pa.list_(LONG)),
        (1, POINT),
        ({"x": 1, "y": "2"}, POINT),
        ((1, "2"), POINT),
        ({"a": "1"}, pa.map_(pa.string(), LONG)),
        ({1: 1}, pa.map_(pa.string(), LONG)),
        ([[1], [{}]], pa.list_(pa.list_(LONG))),
        (b"text", pa.string()),
        ("text", pa.binary()),
        (1, TIMES),
        (1, pa.date32()),
        (datetime(2026, 1, 1), pa.date32()),
    ],
)
def test_no_value_of_such_a_type_fits(value: Any, kind: pa.DataType) -> None:
    assert is_of_wrong_type(value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (300, BYTE),
        (2**63, LONG),
        (math.nan, LONG),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us")),
        (1.5, LONG),
        (Decimal("2.9"), LONG),
        (1e40, pa.float32()),
        (np.int64(300), BYTE),
        (Number.ONE, pa.int64()),
        ("\ud800", pa.string()),
        (Decimal("1e30"), pa.decimal128(10, 2)),
        (timedelta.max, pa.duration("ns")),
        ([1, 2**63], pa.list_(LONG)),
        ({"x": 1, "y": 2**63}, POINT),
        ((1, 2, 3), POINT),
        ({"a": 2**63}, pa.map_(pa.string(), LONG)),
        (None, LONG),
        (1, DOUBLE),
    ],
)
def test_another_value_of_such_a_type_would_fit(value: Any, kind: pa.DataType) -> None:
    assert not is_of_wrong_type(value, kind)
