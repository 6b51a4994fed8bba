"""Decimals of Kafka Connect that are read all at once are those that Python reads one by one."""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.formats.connect.columns import Meaning, read_column

KIND = pa.decimal128(20, 3)
EXACT = Context(prec=200)

unscaled = st.integers(-(10**22), 10**22) | st.integers(-(2**130), 2**130) | st.integers(-300, 300)
others = st.sampled_from(['"A"', '"AAA"', '"=AAA"', '"\\u0041AAA"', "12", "123456", "true", '""'])


@st.composite
def written(draw: st.DrawFn) -> tuple[str | None, int | None]:
    """A text, and the number that it is; None where it is none."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.none() | others), None
    number = draw(unscaled)
    size = (number.bit_length() + 8) // 8 + draw(st.integers(0, 1))
    return json.dumps(base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()), number


def fitting(number: int | None, scale: int) -> Decimal | None:
    if number is None:
        return None
    shown = Decimal(number).scaleb(-scale, EXACT)
    rounded = shown.quantize(Decimal("0.001"), context=EXACT)
    return rounded if rounded == shown and abs(rounded) < 10**17 else None


@given(st.lists(written(), max_size=6), st.integers(-2, 5))
def test_they_are_what_python_reads(rows: list[tuple[str | None, int | None]], scale: int) -> None:
    meaning = Meaning("org.apache.kafka.connect.data.Decimal", scale)
    column = pa.array([text for text, _ in rows], pa.large_string())
    # An escape in JSON is read, if slowly.
    numbers = [0 if text == '"\\u0041AAA"' else number for text, number in rows]
    expected = [fitting(number, scale) for number in numbers]
    found, bad = read_column(column, KIND, meaning)
    assert found.to_pylist() == expected
    lost = [row for row, (text, _) in enumerate(rows) if text and expected[row] is None]
    assert sorted(bad) == lost
