"""Values that the nemesis writes, and what the tables say of them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from nemesis.facts import Place, Row, Version
from nemesis.modes import MODES
from nemesis.registry_faults import fail_registry, kill_registry
from nemesis.schedule import Fault
from nemesis.store import Files
from nemesis.tables import SinkRows, newest_version, versions
from nemesis.values import AvroValues, JsonValues, RawValues
from nemesis.work import Content

FAULT = Fault(0.0, "kill-registry", 1.0, 0.5)


@pytest.fixture
def avro() -> Iterator[AvroValues]:
    made = AvroValues(uuid.uuid4().hex, "orders")
    yield made
    made.close()


def test_a_value_says_what_it_is(avro: AvroValues) -> None:
    """Writers of two schemas write side by side."""
    chance = random.Random(3)
    ids = set()
    for values in (RawValues(), JsonValues(), avro):
        for fields in range(3):
            for n in range(20):
                value = values.written(Content("run", n, "?"), 7, 10, chance)
                assert values.content(value) == Content("run", n, "?")
                if values is avro:
                    ids.add((fields, int.from_bytes(value[1:5], "big")))
            if values is avro:
                avro.grow()
    assert ids == {(0, 1), (1, 1), (1, 2), (2, 2), (2, 3)}


def test_a_registry_that_was_away_is_back_at_its_address(avro: AvroValues) -> None:
    world: Any = SimpleNamespace(values=avro)
    latest = f"{avro.options['schemaRegistry.url']}/subjects/orders-value/versions/latest"
    heal = kill_registry(world, world, FAULT)
    with pytest.raises(URLError):
        urlopen(latest)
    heal()
    heal = fail_registry(world, world, FAULT)
    with pytest.raises(HTTPError):
        urlopen(latest)
    heal()
    with urlopen(latest) as answer:
        told = json.load(answer)
    fields = json.loads(told["schema"])["fields"]
    assert [each["name"] for each in fields[-2:]] == ["f1", "f2"]
    assert avro.fields == 2


def test_a_table_says_which_file_has_which_field(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    world: Any = SimpleNamespace(store=Files(tmp_path), mode=MODES["batch"])
    assert newest_version(tmp_path / "table") == -1
    for fields in ({}, {"f1": 3}, {"f1": 4, "f2": None}):
        said = {"run": "run", "n": len(fields), "mark": "!", "writer": 1, **fields}
        row = {"partition": 0, "offset": 0, "key": b"k", **said}
        table = pa.Table.from_pylist([row])
        write_deltalake(path, table, mode="append", schema_mode="merge")
    rows = SinkRows(world).rows()
    place = Place(0, 0, 2)
    assert rows[2] == Row(place, "k", "run", (2, 2, 0), 2, None, 1, (4, None))
    assert [each.added for each in rows] == [(), (3,), (4, None)]
    assert list(versions(world, "table")) == [
        Version(0, 0, 0),
        Version(1, 1, 1),
        Version(2, 2, 2),
    ]
    assert newest_version(tmp_path / "table") == 2
