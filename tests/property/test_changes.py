"""A table that is made of Debezium's records is the captured table, whatever was done to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captured.source_table import (
    DDL,
    Row,
    Source,
    Written,
    avro_schemas,
    avro_with_ids,
    json_with_schemas,
    json_without_schemas,
)
from keyrange.model.value_forms import DELETED, KEPT, ValueForms
from keyrange.options import parse_options
from keyrange.storage.last_rows import CHANGE, last_of_partitions, last_rows
from keyrange.values.forms import rows_after, value_forms
from keyrange.values.reading import ValueReader
from keyrange.work.outcome_rows import member_type
from project.forms import everyday
from registries.server import schema_registry

REQUIRED = {"kafka.bootstrap.servers": "h:9", "subscribe": "orders"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@cache
def rows_of(database: str) -> st.SearchStrategy[Row]:
    """Of a table, but for its keys. MySQL's times have milliseconds here. Made once: to look over a
    strategy that is new costs more than to draw from it."""
    finest = 1000 if database == "mysql" else 1
    at = TIMES.map(lambda time: time - timedelta(microseconds=time.microsecond % finest))
    columns = {
        "name": TEXT,
        "day": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
        "at": at,
        "seen": TIMES.map(lambda time: time.replace(tzinfo=UTC)),
        "price": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
        "note": TEXT,
        "blob": st.binary(max_size=5),
        "tags": st.lists(st.none() | TEXT, max_size=2),
        "counts": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=2),
    }
    return st.fixed_dictionaries({name: each | st.none() for name, each in columns.items()})


@st.composite
def changed(draw: Any, source: Source) -> list[Written]:
    """The records of one transaction or snapshot."""
    own = rows_of(source.database)
    what = draw(st.sampled_from(["update", "insert", "update", "delete", "key", "all"]))
    keys = sorted(source.rows)
    id = draw(st.sampled_from(keys) if keys and what != "insert" else st.integers(0, 3))
    if what == "all":
        return source.snapshot()
    if id not in source.rows:
        return source.insert({"id": id, **draw(own)})
    if what == "delete":
        return source.delete(id)
    row = draw(own)
    row = {name: row[name] for name in draw(st.sets(st.sampled_from([*row]), max_size=3))}
    to = draw(st.integers(6, 9))
    if what == "key" and to not in source.rows:
        row["id"] = to
    return source.update(id, row)


class Target:
    """The table that is made of the records, as tasks and a merge make it."""

    def __init__(self, forms: ValueForms, registry: Any) -> None:
        self.reader = ValueReader(forms, registry)
        self.rows: dict[int, Row] = {}
        self.offset = 0

    def read(self, records: list[Written]) -> pa.Table:
        """The rows of records with what becomes of them, one partition."""
        keys, values = zip(*records, strict=True) if records else ((), ())
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        read, bad = self.reader.read(pa.record_batch(columns))
        assert bad == {}
        value = read.column("value")
        own = dict(zip(value.type.names, value.flatten(), strict=True))
        deleted, kept = own.pop(DELETED), own.pop(KEPT)
        told = [
            {"topic": "t", "partition": 0, "offset": self.offset + at, "row": 0, "timestamp_ms": 0}
            | {"deleted": deleted[at].as_py(), "kept": None if deleted[at].as_py() else each}
            for at, each in enumerate(kept.to_pylist())
        ]
        self.offset += len(records)
        return pa.table(own | {CHANGE: pa.array(told, member_type("change"))})

    def merge(self, parts: list[pa.Table]) -> None:
        for row in last_rows(pa.concat_tables(parts), ["id"]).to_pylist():
            change = row.pop(CHANGE)
            if change["deleted"]:
                self.rows.pop(row["id"], None)
                continue
            kept = change["kept"] or ()
            before = self.rows.get(row["id"], row)
            self.rows[row["id"]] = row | {name: before[name] for name in kept}


def forms_of(**given: str) -> ValueForms:
    options = parse_options(REQUIRED | {"valueFormat": "debezium", **given}, "stream")
    return rows_after(value_forms(options), ("id",))


@pytest.fixture(scope="module")
def json_forms() -> ValueForms:
    return forms_of(valueSchema=DDL)


SHAPES: dict[str, Callable[..., Written]] = {
    "json": json_without_schemas,
    "json with schemas": json_with_schemas,
}


# Whether the log of the database has whole rows before a change.
DATABASES = pytest.mark.parametrize(
    ("database", "whole"),
    [pytest.param("mysql", True, marks=pytest.mark.ordinary), ("postgres", False)],
)


@DATABASES
@pytest.mark.parametrize("shape", everyday(*SHAPES))
@settings(deadline=None)
@given(data=st.data())
def test_the_table_is_the_captured_one(
    json_forms: ValueForms, shape: str, database: str, whole: bool, data: Any
) -> None:
    source = Source(database, SHAPES[shape], whole, clear=shape == "json")
    check(source, Target(json_forms, None), data)


@DATABASES
@settings(deadline=None)
@given(data=st.data())
def test_the_table_is_the_captured_one_in_avro(
    avro_table: Callable[[str], tuple[Any, ...]], database: str, whole: bool, data: Any
) -> None:
    forms, registry, write = avro_table(database)
    check(Source(database, write, whole), Target(forms, registry), data)


@pytest.fixture(scope="module")
def avro_table() -> Iterator[Callable[[str], tuple[Any, ...]]]:
    """By the name of a database: forms, registry and what writes records."""
    with schema_registry() as registry:
        asked = {"valueFormat": "debezium", "schemaRegistry.url": registry.url}

        @cache
        def made(database: str) -> tuple[Any, ...]:
            schemas = map(json.dumps, avro_schemas(database))
            ids = [
                registry.register(f"{database}-{side}", text)
                for side, text in zip(("key", "value"), schemas, strict=True)
            ]
            options = parse_options(REQUIRED | asked | {"subscribe": database}, "stream")
            forms = rows_after(value_forms(options), ("id",))
            return forms, options.registry, avro_with_ids(*ids)

        yield made


def check(source: Source, target: Target, data: Any) -> None:
    source.tells_keys = data.draw(st.booleans())
    for batch in batches(source, data):
        parts: list[pa.Table] = []
        for records in batch:
            # A task chooses again and again among what it has read.
            parts = [last_of_partitions(pa.concat_tables([*parts, target.read(records)]), ["id"])]
        if parts:
            target.merge(parts)
        assert target.rows == source.rows


def batches(source: Source, data: Any) -> Iterator[list[list[Written]]]:
    for _ in range(3):
        steps = range(data.draw(st.integers(2, 6)))
        yield [data.draw(changed(source)) for _ in steps]
