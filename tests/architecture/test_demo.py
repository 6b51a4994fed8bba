"""The demo's data can be read with the locked packages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "ci" / "demo.py"


@pytest.mark.parametrize(
    ("most", "count", "without"),
    [(10_000, 10_000, 14), pytest.param(None, 336_776, 2_512, marks=pytest.mark.slow)],
)
def test_flights_are_there_with_their_tail_numbers(
    most: int | None, count: int, without: int
) -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)

    keys, values = demo.flights(most)

    assert len(keys) == len(values) == count
    assert keys.count(None) == without
    first = json.loads(values[0])
    assert (keys[0], first["carrier"], first["flight"]) == (b"N14228", "UA", 1545)
