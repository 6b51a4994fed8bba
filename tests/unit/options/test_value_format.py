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


def test_dead_letters_are_of_individual_commits() -> None:
    assert values(**JSON, **INDIVIDUAL, badValues="deadLetter").bad == "deadLetter"


def test_a_column_that_is_not_read_may_have_its_name_taken() -> None:
    found = values(columns="key,value", valueFormat="json", valueSchema="offset bigint, value int")
    assert found.schema


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"valueFormat": "json"}, "valueFormat"),
        ({"valueFormat": "avro"}, "valueFormat"),
        ({"valueSchema": "id int"}, "valueSchema"),
        ({"badValues": "null"}, "badValues"),
        (JSON | {"badValues": "skip"}, "badValues"),
        (JSON | {"badValues": "deadLetter"}, "badValues"),
        ({"valueFormat": "json", "valueSchema": "id what"}, "valueSchema"),
        ({"valueFormat": "json", "valueSchema": "Offset int"}, "valueSchema"),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidError, match=rf"option '{named}'"):
        values(**given)
