"""The schema and the commands belong together. That documents are what it says is held by
`documents.read_document`, through which the tests of each command read what it prints."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from commands.command_words import COMMANDS
from commands.commanding import document, text
from commands.documents import document_schemas, read_document, read_schema
from keyrange.cli import render
from keyrange.embedded import daemon
from keyrange.embedded.daemon import Daemon
from keyrange.errors import CATALOGUE
from keyrange.options import OPTIONS
from keyrange.options.kafka_properties import PROPERTIES

CLI = Path(render.__file__).parent
# What `state serve` answers with beside what commands print.
SERVED = {"keyrange.state.rows", "keyrange.state.status"}
# Commands that always print lines of JSON, by the schema that they share.
EVENTS = {"volumes guard", "volumes reap", "volumes release"}


def printed() -> set[str]:
    """The schemas that commands name, with their versions."""
    found = set()
    for file in CLI.rglob("*.py"):
        found |= set(
            re.findall(
                r'(?:print_document|print_as|json_answer)\(\s*(?:(?:of\.)?output,\s*)?f?"([^"]+)"',
                file.read_text(),
            )
        )
    [either] = [each for each in found if "{action}" in each]
    return found - {either} | {
        either.format(action=each) for each in ("rebalance", "remove", "scale")
    }


def test_every_document_has_a_schema_and_every_schema_a_document() -> None:
    schema = read_schema()
    Draft202012Validator.check_schema(schema)
    named = {f"keyrange.{name}" for name in printed()}
    assert named == document_schemas().keys() == set(schema["properties"]["schema"]["enum"])
    assert len(named) > 20
    assert schema["required"] == ["schema"]
    assert all(each["title"] for each in schema["allOf"])


@pytest.mark.ordinary
def test_every_command_with_json_has_a_schema_of_its_name() -> None:
    with_json = set()
    for words in COMMANDS:
        shown = text(*words.split(), "--help")
        if re.search(r"--output <[^>]*\bjson\b", shown):
            with_json.add(f"keyrange.{words.replace(' ', '.')}")
    names = {name.partition("/")[0] for name in document_schemas()}
    assert with_json | {"keyrange.volumes.event"} | SERVED == names
    assert COMMANDS.keys() >= EVENTS


def parts_within(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and everything in it that is one."""
    if isinstance(schema, list):
        for each in schema:
            yield from parts_within(each)
    elif isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from parts_within(each)


def test_what_documents_share_stands_once_in_a_schema_that_needs_no_other() -> None:
    schema = read_schema()
    parts = list(parts_within(schema))
    named = {each["$ref"] for each in parts if "$ref" in each}
    assert named == {f"#/$defs/{name}" for name in schema["$defs"]}
    shapes = Counter(
        json.dumps({name: each[name] for name in each if name != "description"}, sort_keys=True)
        for each in parts
        if len(each.get("required", ())) > 2
    )
    assert [shape for shape, count in shapes.items() if count > 1] == []


@pytest.mark.parametrize("name", document_schemas())
def test_a_document_that_lacks_a_name_or_is_of_another_version_is_refused(name: str) -> None:
    """By the schema as users get it, which lets names pass that it does not know."""
    validator = Draft202012Validator(read_schema())
    part = read_schema()["$defs"][document_schemas()[name]]
    said = {error.message for error in validator.iter_errors({"schema": name})}
    assert said == {f"{each!r} is a required property" for each in part.get("required", ())}
    # Of a record there is what --columns asks for.
    assert said or name == "keyrange.records/1"
    assert not validator.is_valid({"schema": f"{name[:-1]}9"})
    wrong = {key: ["no", "document", {"holds": "this"}] for key in part["properties"]}
    assert not validator.is_valid({"schema": name, **wrong})


def test_what_documents_share_refuses_what_is_wrong_in_each_of_them() -> None:
    """A member, within a list of members and beside what was asked of the driver."""
    validator = Draft202012Validator(read_schema())
    member = dict.fromkeys(("static", "host", "executor", "cores", "source", "live"))
    member |= {"name": "a", "slot": "a", "share": 0.5, "ranges": 1, "partitions": 1, "state": "A"}
    member |= dict.fromkeys(("since", "last_seen", "last_seen_ms_ago"))
    removal = {"schema": "keyrange.members.remove/1", "table": "t", "group": "g", "seq": 1}
    removal |= {"epoch": 1, "waiting": [], "written": None}
    listed = {"schema": "keyrange.members.list/1", "table": "t", "group": "g", "seq": 1}
    listed |= {"member_group": None, "epoch": 1, "at": "2026-05-01T12:00:00Z", "age_ms": 1}
    listed |= {"reason": "", "run_id": "", "next": None, "live": None, "partitions": []}
    listed |= {"waiting": [], "expected": None}
    for given in (removal, listed):
        assert validator.is_valid({**given, "members": [member]})
        for wrong in ({"share": "half"}, {"name": None}, {"ranges": 1.5}, {"live": "yes"}):
            assert not validator.is_valid({**given, "members": [{**member, **wrong}]})


def test_no_json_is_printed_past_the_schemas() -> None:
    """Two values of options aside, which are printed as the options take them."""
    counts = {
        file.relative_to(CLI).as_posix(): file.read_text().count("print_text(json.dumps(")
        for file in CLI.rglob("*.py")
    }
    found = {name: count for name, count in counts.items() if count}
    assert found == {"ranges/commands.py": 1, "render.py": 1}


def test_a_document_that_is_not_as_its_schema_says_is_noticed() -> None:
    whole = {"name": "A", "kind": "denied", "retriable": False, "meaning": "m", "remedy": "r"}
    whole |= {"look": "l", "guide": None}
    good = {"schema": "keyrange.errors/1", "conditions": [whole]}
    assert read_document(json.dumps(good)) == {"conditions": [whole]}
    for wrong in ({"kind": "new"}, {"retriable": "no"}, {"more": 1}, {"remedy": None}):
        with pytest.raises(ValidationError):
            read_document(json.dumps({**good, "conditions": [{**whole, **wrong}]}))
    for wrong in ({"schema": "keyrange.errors/2"}, {"schema": "keyrange.doctor/1"}, {"more": 1}):
        with pytest.raises(ValidationError):
            read_document(json.dumps({**good, **wrong}))


def test_the_references_are_documents() -> None:
    options, errors = document("options"), document("errors")
    assert isinstance(options, dict)
    assert isinstance(errors, dict)
    of_source = [each for each in options["options"] if each["in"] not in ("consumer", "topic")]
    assert [each["name"] for each in of_source] == [row.name for row in OPTIONS]
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
