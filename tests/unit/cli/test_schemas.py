"""Schemas and commands belong together. That documents are what their schemas say is held by
`documents.read_document`, through which the tests of each command read what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from typer.testing import CliRunner

from command_words import COMMANDS
from documents import read_document, read_schema, schema_names
from keyrange.cli import render
from keyrange.cli.main import app
from keyrange.embedded import daemon
from keyrange.embedded.daemon import Daemon
from keyrange.errors import CATALOGUE
from keyrange.options import OPTIONS
from keyrange.options.kafka_properties import PROPERTIES

CLI = Path(render.__file__).parent
# Commands that always print lines of JSON, by the schema that they share.
EVENTS = {"volumes guard", "volumes reap", "volumes release"}


def printed() -> set[str]:
    """The schemas that commands name, with their versions."""
    found = set()
    for file in CLI.rglob("*.py"):
        found |= set(re.findall(r'print_document\(\s*f?"([^"]+)"', file.read_text()))
    [either] = [each for each in found if "{action}" in each]
    return found - {either} | {either.format(action=each) for each in ("rebalance", "remove")}


def test_every_document_has_a_schema_and_every_schema_a_document() -> None:
    named = {name.partition("/")[0]: f"keyrange.{name}" for name in printed()}
    assert named.keys() == schema_names()
    assert len(named) > 20
    for name, versioned in named.items():
        schema = read_schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == schema["properties"]["schema"]["const"] == versioned
        assert "schema" in schema["required"]
        assert schema["title"]


def test_every_command_with_json_has_a_schema_of_its_name() -> None:
    with_json = set()
    for words in COMMANDS:
        shown = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
        if re.search(r"--output <[^>]*\bjson\b", shown):
            with_json.add(words.replace(" ", "."))
    assert with_json | {"volumes.event"} == schema_names()
    assert COMMANDS.keys() >= EVENTS


def test_no_json_is_printed_past_the_schemas() -> None:
    """Two values of options aside, which are printed as the options take them."""
    counts = {
        file.relative_to(CLI).as_posix(): file.read_text().count("print_text(json.dumps(")
        for file in CLI.rglob("*.py")
    }
    found = {name: count for name, count in counts.items() if count}
    assert found == {"ranges/commands.py": 1, "render.py": 3}


def test_a_document_that_is_not_as_its_schema_says_is_noticed() -> None:
    whole = {"name": "A", "kind": "denied", "retriable": False, "meaning": "m", "remedy": "r"}
    whole |= {"look": "l", "guide": None}
    good = {"schema": "keyrange.errors/1", "conditions": [whole]}
    assert read_document(json.dumps(good)) == {"conditions": [whole]}
    for wrong in ({"kind": "new"}, {"retriable": "no"}, {"more": 1}, {"remedy": None}):
        with pytest.raises(ValidationError):
            read_document(json.dumps({**good, "conditions": [{**whole, **wrong}]}))
    with pytest.raises(ValidationError):
        read_document(json.dumps({**good, "schema": "keyrange.errors/2"}))


def document(*words: str) -> object:
    result = CliRunner().invoke(app, [*words, "--output", "json"])
    assert result.exit_code == 0, result.output
    return read_document(result.stdout)


def test_the_references_are_documents() -> None:
    options, errors = document("options"), document("errors")
    assert isinstance(options, dict)
    assert isinstance(errors, dict)
    assert [each["name"] for each in options["options"]] == [row.name for row in OPTIONS]
    assert len(options["kafka"]) == len(PROPERTIES)
    assert [each["name"] for each in errors["conditions"]] == sorted(CATALOGUE)


def test_a_broker_is_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Daemon(7, "127.0.0.1:9092", "4.3.1", "/somewhere")
    monkeypatch.setattr(daemon, "start", lambda *_: running)
    monkeypatch.setattr(daemon, "status", lambda _: running)
    for command in ("start", "status"):
        assert document("broker", command) == {
            "pid": 7,
            "bootstrap_servers": "127.0.0.1:9092",
            "version": "4.3.1",
            "directory": "/somewhere",
        }
