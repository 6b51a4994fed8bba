"""The options about what values are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.options import parse_options
from keyrange.options.value_format import ValueOptions

REQUIRED = {"kafka.bootstrap.servers": "h:9", "subscribe": "t"}
JSON = {"valueFormat": "json", "valueSchema": "id bigint, name string"}
INDIVIDUAL = {"commitMode": "individual", "commitTable": "/t"}


def values(**given: str) -> ValueOptions:
    return parse_options(REQUIRED | given, "stream").values


def test_a_schema_is_that_of_spark() -> None:
    found = values(**JSON)
    assert found.format == "json"
    assert found.bad == "fail"
    fields = json.loads(found.schema)["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [("id", "long"), ("name", "string")]


def test_a_registry_may_have_the_schema() -> None:
    for form in ("avro", "protobuf", "json"):
        with pytest.raises(InvalidError, match="needs valueSchema or") as raised:
            values(valueFormat=form)
        assert "or schemaRegistry.url, where a registry has the schemas" in str(raised.value)


@pytest.mark.parametrize("more", [INDIVIDUAL, {"deadLetterTable": "/d"}, {"commitTable": "/t"}])
def test_dead_letters_have_a_table(more: dict[str, str]) -> None:
    assert values(**JSON, **more, badValues="deadLetter").bad == "deadLetter"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"valueFormat": "json"}, "valueFormat"),
        ({"valueFormat": "xml"}, "valueFormat"),
        ({"valueSchema": "id int"}, "valueSchema"),
        ({"badValues": "null"}, "badValues"),
        (JSON | {"badValues": "skip"}, "badValues"),
        (JSON | {"badValues": "deadLetter"}, "badValues"),
        ({"valueFormat": "json", "valueSchema": "id what"}, "valueSchema"),
        ({"keyFormat": "json"}, "keyFormat"),
        ({"keyFormat": "string", "keySchema": "id int"}, "keySchema"),
        (JSON | {"keyMessage": "Key"}, "keyMessage"),
        ({"timeZone": "UTC"}, "timeZone"),
        ({"keyFormat": "debezium", "keySchema": "id int"}, "keyFormat"),
        (JSON | {"rescuedData": "Offset"}, "rescuedData"),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidError, match=rf"option '{named}'"):
        values(**given)
