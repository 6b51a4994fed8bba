"""What commands print with `--output json`, held to its schema when a test reads it.

The schemas are open: a document may have names that they do not know. Here they are closed, so that
every name that is printed stands in a schema.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

_FORMATS = FormatChecker(())
# Documents that are a list and little else, by the list's name.
_LISTS = {
    "keyrange.commits.gaps/1": "gaps",
    "keyrange.commits.history/1": "commits",
    "keyrange.deadletters.list/1": "dead_letters",
    "keyrange.deadletters.show/1": "dead_letters",
    "keyrange.members.history/1": "events",
    "keyrange.doctor/1": "findings",
}


@_FORMATS.checks("date-time", ValueError)
def _is_time(text: object) -> bool:
    return not isinstance(text, str) or datetime.fromisoformat(text).tzinfo is not None


def schema_names() -> set[str]:
    """The names of the schema files, such as `commits.show`."""
    return {each.name.removesuffix(".json") for each in _directory().iterdir()}


def read_schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_directory() / f"{name}.json").read_text())
    return document


def read_document(text: str) -> Any:
    """A document without the name of its schema; the list alone where it is one. Fails where it is
    not what its schema says."""
    document = json.loads(text)
    schema = document["schema"]
    _validator(schema).validate(document)
    if schema in _LISTS:
        return document[_LISTS[schema]]
    del document["schema"]
    return document


@cache
def _validator(schema: str) -> Draft202012Validator:
    name = schema.removeprefix("keyrange.").rpartition("/")[0]
    found = read_schema(name)
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(_closed(found), format_checker=_FORMATS)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each) for name, each in schema.items()}
    if "properties" in closed and isinstance(schema["properties"], dict) and "type" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _directory() -> Any:
    return files("keyrange") / "schemas"
