"""The options mapInArrow and mapInArrowSchema, and what goes with them."""

from __future__ import annotations

import json

import pytest

from keyrange.errors import InvalidError
from keyrange.options import MapInArrow, Mode, parse_options

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
FUNCTION = {"mapInArrow": "jobs.work:fold"}
SCHEMA = {"mapInArrowSchema": "n long"}
N = {
    "type": "struct",
    "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
}


def violations(options: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | options)
    assert caught.value.condition.name == "INVALID_OPTIONS"
    return caught.value.message.split("; option ")


@pytest.mark.parametrize("mode", [None, "batch", "stream"])
def test_a_function_and_its_schema(mode: Mode | None) -> None:
    mapping = parse_options(REQUIRED | FUNCTION | SCHEMA, mode).map_in_arrow
    assert mapping == MapInArrow("jobs.work", "fold", json.dumps(N))
    assert str(mapping) == "jobs.work:fold"


def test_a_function_may_be_part_of_something() -> None:
    mapping = parse_options(REQUIRED | SCHEMA | {"mapInArrow": " work:Fold.by_key "}).map_in_arrow
    assert mapping is not None
    assert (mapping.module, mapping.function) == ("work", "Fold.by_key")


@pytest.mark.parametrize(
    "value", ["", "work", "work:", ":fold", "a.b:c:d", "a b:c", "a..b:c", "1:c"]
)
def test_what_is_no_name_of_a_function(value: str) -> None:
    [message] = violations(SCHEMA | {"mapInArrow": value})
    assert message.startswith("option 'mapInArrow' must be package.module:function, ")
    assert message.endswith(f"not '{value}'")


def test_what_is_no_schema() -> None:
    [message] = violations(FUNCTION | {"mapInArrowSchema": "n"})
    assert message.startswith("option 'mapInArrowSchema' must be columns and their types")


def test_one_needs_the_other() -> None:
    [message] = violations(FUNCTION)
    assert message.startswith("option 'mapInArrow' needs mapInArrowSchema")
    [message] = violations(SCHEMA)
    assert message.startswith("option 'mapInArrowSchema' needs mapInArrow:")


def test_filters_are_not_pushed_through_a_function() -> None:
    [message] = violations(FUNCTION | SCHEMA | {"filterPushdown": "true"})
    assert message.startswith("option 'filterPushdown' is not valid with mapInArrow")


def test_all_that_is_wrong_is_said_at_once() -> None:
    given = {"mapInArrow": "work", "mapInArrowSchema": "n", "filterPushdown": "true"}
    messages = violations(given)
    assert len(messages) == 3
    assert all(any(name in message for message in messages) for name in given)
