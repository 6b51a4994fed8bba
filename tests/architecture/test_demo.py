"""The demo's data can be read with the locked packages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

DEMO = Path(__file__).parents[2] / "ci" / "demo.py"


def test_every_flight_is_there_with_its_tail_number() -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)

    keys, values = demo.flights()

    assert len(keys) == len(values) == 336_776
    assert keys.count(None) == 2_512
    first = json.loads(values[0])
    assert (keys[0], first["carrier"], first["flight"]) == (b"N14228", "UA", 1545)
