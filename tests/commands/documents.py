"""What commands print with `--output json`, held to the schema when a test reads it.

The schema is open: a document may have names that it does not know. Here it is closed, so that
every name that is printed stands in it.
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


@cache
def read_schema() -> dict[str, Any]:
    """The schema of all documents."""
    text = (files("keyrange") / "schemas" / "documents.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


def document_schemas() -> dict[str, str]:
    """The name of the part that describes a document, by the document's name and version."""
    return {
        each["if"]["properties"]["schema"]["const"]: each["then"]["$ref"].removeprefix("#/$defs/")
        for each in read_schema()["allOf"]
    }


def read_document(text: str) -> Any:
    """A document without the name of its schema; the list alone where it is one. Fails where it is
    not what its schema says."""
    document = json.loads(text)
    _validator().validate(document)
    schema = document.pop("schema")
    return document[_LISTS[schema]] if schema in _LISTS else document


@cache
def _validator() -> Draft202012Validator:
    schema = read_schema()
    Draft202012Validator.check_schema(schema)
    parts = {name: _closed(part) for name, part in schema["$defs"].items()}
    for name in set(document_schemas().values()):
        # A document has the name of its schema too, which does not stand in the part.
        del parts[name]["additionalProperties"]
    closed = {**schema, "$defs": parts, "unevaluatedProperties": False}
    return Draft202012Validator(closed, format_checker=_FORMATS)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each) for name, each in schema.items()}
    if "properties" in closed and isinstance(schema["properties"], dict) and "type" in closed:
        closed.setdefault("additionalProperties", False)
    return closed
