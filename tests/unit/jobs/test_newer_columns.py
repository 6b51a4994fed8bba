"""What the planner of a query learns of the newest schemas, and what its tasks make of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from keyrange.formats.left_out import changed
from keyrange.jobs import newer_columns
from keyrange.jobs.definition import JobDefinition
from keyrange.jobs.newer_columns import NewestColumns, followed, follows
from keyrange.jobs.record_columns import schema_without_function
from keyrange.options import SourceOptions, parse_options
from keyrange.registry import subjects
from keyrange.values.forms import rows_after, value_forms
from keyrange.work.model.output_table import OutputTable
from registries.server import Registry, schema_registry

ID, NOTE, PRICE = "id bigint", "note string", "price double"
KINDS = {"bigint": "long", "string": "string", "double": "double", "int": "int"}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(newer_columns, "_PAUSE_S", 0.0)
    monkeypatch.setattr(newer_columns, "_LONG_PAUSE_S", 0.0)
    with schema_registry() as made:
        yield made


def register(registry: Registry, *columns: str) -> None:
    fields = [each.split() for each in columns]
    told = [{"name": name, "type": ["null", KINDS[kind]], "default": None} for name, kind in fields]
    row = {"type": "record", "name": "Value", "fields": told}
    sides: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
    ]
    others = [{"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}]
    envelope = {"type": "record", "name": "Envelope", "fields": [*sides, *others]}
    registry.register("t-value", json.dumps(row))
    registry.register("changes-value", json.dumps(envelope))


def given(registry: Registry, topic: str = "t", **more: str) -> SourceOptions:
    values = {"valueFormat": "avro" if topic == "t" else "debezium", "columns": "value"}
    servers = {"kafka.bootstrap.servers": "localhost:1", "subscribe": topic}
    registered = {"schemaRegistry.url": registry.url, "schemaRegistry.tries": "3"}
    return parse_options(servers | values | registered | more, "stream")


def job(options: SourceOptions, *keys: str) -> JobDefinition:
    forms = value_forms(options)
    forms = rows_after(forms, keys) if keys else forms
    columns = schema_without_function(replace(options, forms=forms)).toNullable()
    table = OutputTable("/t", columns.json(), evolves=True, keys=keys)
    return JobDefinition((table,), "", "arrow", ("value",), forms=forms)


def names(definition: JobDefinition) -> list[str]:
    return [each["name"] for each in json.loads(definition.tables[0].schema)["fields"]]


@pytest.mark.parametrize("topic", ["t", "changes"])
def test_new_fields_are_columns_of_the_next_batch(registry: Registry, topic: str) -> None:
    register(registry, ID)
    options = given(registry, topic)
    definition = job(options, *["id"] * (topic == "changes"))
    assert follows(options, definition)
    asked = NewestColumns(options, definition, None)  # type: ignore[arg-type]
    assert asked() is None
    for more in ([NOTE], [NOTE, PRICE]):
        register(registry, ID, *more)
        told = json.loads(json.dumps(asked()))
        own = followed(definition, told)
        options_now = given(registry, topic)
        assert own == job(options_now, *["id"] * (topic == "changes"))
        assert [each.split()[0] for each in (ID, *more)] == names(own)[: len(more) + 1]
    # A query that starts anew begins with all of it.
    again = NewestColumns(options_now, own, None)  # type: ignore[arg-type]
    assert again() is None


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([PRICE], "it has no 'id'"),
        (["id int", PRICE], "'id' is int32 and was int64"),
        ([ID, "ID string"], "fields 'id' and 'ID' in value"),
        ([ID, "_keyrange string"], "column '_keyrange' is keyrange's own"),
    ],
)
def test_what_is_more_than_new_fields_is_told_once(
    registry: Registry, caplog: pytest.LogCaptureFixture, columns: list[str], why: str
) -> None:
    register(registry, ID)
    options = given(registry)
    asked = NewestColumns(options, job(options), None)  # type: ignore[arg-type]
    register(registry, *columns)
    assert [asked(), asked()] == [None, None]
    [text] = [each for each in caplog.messages if "goes on with the columns that it has" in each]
    assert why in text
    # What adds fields again is taken in.
    register(registry, ID, PRICE)
    assert asked() is not None


def test_a_schema_by_which_records_of_before_cannot_be_read(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as compatibility FORWARD allows, and BACKWARD behind the next one. They would be bad
    values, or nulls without a word."""
    default = ',"default":0'

    def register_ints(*fields: str) -> None:
        told = ",".join(f'{{"name":"{each[0]}","type":"int"{each[1:]}}}' for each in fields)
        text = f'{{"type":"record","name":"Value","fields":[{told}]}}'
        registry.register("t-value", text)

    register_ints("a")
    plain, rescued = (
        NewestColumns(options, job(options), None)  # type: ignore[arg-type]
        for options in (given(registry), given(registry, rescuedData="rest"))
    )
    register_ints("a", "b")
    assert plain() is None
    assert "field b: the writer has none, and the reader no default for it" in caplog.text
    assert '"b"' in str(rescued())
    register_ints("a", "b" + default)
    assert '"b"' in str(plain())
    register_ints("a", "b", "c" + default)
    assert '"c"' not in str(plain())


NARROWED = {
    "no nulls": ('["null","int"]', '"int"', "the writer's null"),
    "in a list": (
        '{"type":"array","items":["null","int"]}',
        '{"type":"array","items":"int"}',
        "field b[]: the writer's null",
    ),
    "a symbol less": (
        '{"type":"enum","name":"E","symbols":["x","y"]}',
        '{"type":"enum","name":"E","symbols":["x"]}',
        "has no symbol y",
    ),
}


@pytest.mark.parametrize("how", NARROWED)
@pytest.mark.parametrize("more", [{}, {"rescuedData": "rest"}])
def test_a_schema_that_lacks_values_of_before(
    registry: Registry, caplog: pytest.LogCaptureFixture, how: str, more: dict[str, str]
) -> None:
    """Columns have the same type."""

    def register_b(kind: str, others: str = "") -> None:
        told = f'{{"name":"b","type":{kind}}}{others}'
        registry.register("t-value", f'{{"type":"record","name":"V","fields":[{told}]}}')

    was, now, why = NARROWED[how]
    new = ',{"name":"c","type":"int","default":0}'
    register_b(was)
    options = given(registry, **more)
    asked = NewestColumns(options, job(options), None)  # type: ignore[arg-type]
    register_b(now, new)
    assert asked() is None
    assert why in caplog.text
    register_b(was, new)
    assert asked() is not None


def test_a_registry_that_is_away_stops_nothing(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, newer_columns.__name__)
    register(registry, ID)
    options = given(registry)
    asked = NewestColumns(options, job(options), None)  # type: ignore[arg-type]
    register(registry, ID, NOTE)
    registry.requests.clear()
    registry.faults = [503, 503, "none", 503]
    known = [asked() for _ in range(4)]
    assert [each is None for each in known] == [True, True, False, False]
    # Nobody waits for a second answer.
    assert len(registry.requests) == 4
    said = [each for each in caplog.messages if "REGISTRY_UNREACHABLE" in each]
    assert len(said) == 2
    assert "the query reads new fields from this batch on: note" in caplog.messages


def test_a_registry_is_not_asked_for_each_batch(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newer_columns, "_PAUSE_S", 60.0)
    register(registry, ID)
    options = given(registry)
    asked = NewestColumns(options, job(options), None)  # type: ignore[arg-type]
    registry.requests.clear()
    assert [asked() for _ in range(3)] == [None] * 3
    assert len(registry.requests) == 1


def test_what_a_connection_exposes_is_told_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subjects, "exposures", lambda _: ["it is exposed"])
    register(registry, ID)
    options = given(registry)
    asked = NewestColumns(options, job(options), cast(Any, object()))
    assert [asked() for _ in range(3)] == [None] * 3
    assert caplog.messages == ["it is exposed"]


@pytest.mark.parametrize("changes", [{"function": b"f"}, {"holds": True}, {"tables": ()}])
def test_who_does_not_follow(registry: Registry, changes: dict[str, Any]) -> None:
    register(registry, ID)
    options = given(registry)
    assert not follows(options, replace(job(options), **changes))
    said = given(registry, valueFormat="json", valueSchema=ID)
    assert not follows(said, job(said))
    [table] = job(options).tables
    assert not follows(options, replace(job(options), tables=(replace(table, evolves=False),)))


@pytest.mark.parametrize(
    ("newer", "older", "why"),
    [
        (pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int8())])), None, []),
        (pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.int8())])), None, []),
        (pa.list_(pa.struct([("y", pa.int8())])), None, ["it has no 'a.x'"]),
        (pa.map_(pa.int64(), pa.int64()), pa.map_(pa.string(), pa.int64()), ["'a' is map<int64"]),
    ],
)
def test_what_a_type_has_otherwise(newer: pa.DataType, older: Any, why: list[str]) -> None:
    if older is None:
        inner = pa.struct([("x", pa.int64())])
        is_list = pa.types.is_list(newer)
        older = pa.list_(inner) if is_list else pa.map_(pa.string(), inner)
    types = [pa.struct([("a", each)]) for each in (newer, older)]
    found = [*changed(*types)]
    assert [text[: len(each)] for text, each in zip(found, why, strict=True)] == why
