"""What the driver makes of options about keys and values."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.model.value_forms import ColumnForm, ReadSettings, Schema, ValueForms
from keyrange.options import parse_options
from keyrange.values.forms import rows_after, value_forms, with_schemas

ORDER = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'


def test_tasks_are_told_descriptors_and_need_no_compiler() -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": "protobuf"}
    (form,) = value_forms(parse_options(given | {"valueSchema": ORDER})).columns
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", form.schema.text)


def test_a_newer_schema_is_held_to_what_a_first_one_is() -> None:
    """Python knows no zone CST, which Spark's sessions may have."""

    def schema(kind: str) -> Schema:
        fields = [{"name": "at", "type": kind, "nullable": True, "metadata": {}}]
        return Schema(json.dumps({"type": "struct", "fields": fields}))

    form = ColumnForm("value", "connect", schema("string"), ReadSettings("CST"))
    for kind in ("string", "timestamp_ntz"):
        with_schemas(ValueForms((form,)), {"value": (schema(kind), None)})
    with pytest.raises(InvalidError, match="zone 'CST', which Python does not know"):
        with_schemas(ValueForms((form,)), {"value": (schema("timestamp"), None)})


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    members = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "fields": members}


LINE = _record("Line", ("id", "long"), ("ID", "string"))
OF_LINES = _record("Order", ("lines", {"type": "array", "items": LINE}))
ROWS = (("before", ["null", LINE]), ("after", ["null", "Line"]))
ENVELOPE = _record("Envelope", *ROWS, ("op", "string"), ("ts_ms", ["null", "long"]))
LINE_PROPERTIES = {"properties": {"id": {"type": "integer"}, "ID": {"type": "string"}}}
BY_LINE = {"type": "object", "additionalProperties": LINE_PROPERTIES}


@pytest.mark.parametrize(
    ("form", "schema", "path"),
    [
        ("json", json.dumps({"properties": {"lines": BY_LINE}}), "value.lines"),
        ("json", json.dumps({"allOf": [LINE_PROPERTIES]}), "value"),
        ("avro", json.dumps(OF_LINES), "value.lines"),
        ("connect", json.dumps(LINE), "value"),
        (
            "debezium",
            json.dumps(ENVELOPE),
            "value.before",
        ),
        (
            "protobuf",
            'syntax = "proto2"; message Order { repeated Line lines = 1; } '
            "message Line { optional int64 id = 1; optional string ID = 2; }",
            "value.lines",
        ),
    ],
)
def test_names_that_differ_in_their_case_alone_are_refused(
    form: str, schema: str, path: str
) -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t"}
    said = rf"option 'valueSchema' has fields 'id' and 'ID' in {path}: "
    with pytest.raises(InvalidError, match=said):
        value_forms(parse_options(given | {"valueFormat": form, "valueSchema": schema}))


@pytest.mark.parametrize("form", ["avro", "connect"])
def test_a_name_with_half_a_character_is_refused(form: str) -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": form}
    schema = json.dumps(_record("Order", ("\ud800", "long")))
    with pytest.raises(InvalidError, match="'valueSchema' has a name that is not Unicode"):
        value_forms(parse_options(given | {"valueSchema": schema}))


@pytest.mark.parametrize("form", ["json", "connect", "debezium"])
def test_a_map_in_json_has_texts_for_keys(form: str) -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": form}
    options = parse_options(given | {"valueSchema": "id bigint, s struct<m: map<int, string>>"})
    with pytest.raises(InvalidError, match=r"s\.m: keys of a map in JSON are texts"):
        value_forms(options)


@pytest.mark.parametrize("bad", ["null", "column"])
@pytest.mark.parametrize("form", ["json", "debezium"])
def test_nulls_of_what_cannot_be_read_take_no_rows_place(form: str, bad: str) -> None:
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": form}
    options = given | {"valueSchema": "id bigint, n int", "badValues": bad}
    with pytest.raises(InvalidError, match=f"'badValues' is {bad}, and what cannot be read has no"):
        rows_after(value_forms(parse_options(options)), ("id",))
