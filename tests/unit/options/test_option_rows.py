"""Options as fields: what a row makes of a dataclass, and that each is written once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from keyrange import options
from keyrange.consumer.settings import CONSUMER_OPTIONS
from keyrange.options import OPTIONS, SourceOptions
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.option import (
    GivenOptions,
    by_name,
    made_of,
    near_option,
    option,
    option_fields,
    rows_of,
)
from keyrange.options.topic_options import TOPIC_OPTIONS
from keyrange.options.value_parsers import (
    Violations,
    boolean,
    int_between,
    is_one,
    one_of,
    prop,
    properties_of,
)

HERE = Path(options.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Inner:
    third: int | None = option("a.third", int_between(0, 9), "Third.", values="a number")


@dataclass(frozen=True, kw_only=True)
class Outer:
    made: str = "made"
    first: int = option("first", int_between(0, 9), "First.", values="a number", default="4")
    second: str = option("Second", one_of("a", "b"), "Second.", unset="")
    inner: Inner = made_of(Inner, Inner())
    fourth: bool = option("fourth", boolean, "Fourth.", default="true", part=True)


def given(**texts: str) -> tuple[GivenOptions, Violations]:
    violations = Violations()
    taken = GivenOptions(by_name(rows_of(Outer)), violations)
    assert [name for name, value in texts.items() if not taken.take(name, value)] == []
    return taken, violations


def test_rows_stand_in_the_order_of_their_fields() -> None:
    assert [row.name for row in rows_of(Outer)] == ["first", "Second", "a.third", "fourth"]
    assert option_fields(Outer) == {"first": "first", "second": "Second", "fourth": "fourth"}


def test_a_field_has_its_options_default_without_it() -> None:
    assert (Outer().first, Outer().second, Outer().inner, Outer().fourth) == (4, "", Inner(), True)
    assert Inner().third is None
    assert given()[0].settings(Outer) == Outer()


def test_a_field_has_what_its_option_was_given() -> None:
    taken, violations = given(FIRST="7", second="b", **{"A.Third": "3"})
    assert taken.settings(Outer, made="anew") == Outer(made="anew", first=7, second="b")
    assert taken.settings(Inner) == Inner(third=3)
    assert violations.messages == []
    assert not taken.take("fifth", "1")
    assert near_option("SECOMD", by_name(rows_of(Outer))) == " (did you mean 'Second'?)"


def test_what_cannot_be_parsed_is_named_and_has_no_value() -> None:
    taken, violations = given(first="many")
    assert violations.messages == ["option 'first' must be a whole number, not 'many'"]
    assert taken.names("first")
    assert not taken.has("first")
    assert taken.settings(Outer) == Outer()
    with pytest.raises(KeyError):
        taken.names("fifth")


def test_a_part_is_neither_compared_nor_shown() -> None:
    taken, _ = given(fourth="false")
    assert not taken.settings(Outer).fourth
    assert taken.settings(Outer) == Outer()
    assert "fourth" not in repr(Outer())


def test_one_word_of_some_as_whether_it_is_meant() -> None:
    parse = is_one("first", "spread", "first")
    assert (parse(" first "), parse("spread")) == (True, False)
    with pytest.raises(ValueError, match="must be one of spread, first, not 'last'"):
        parse("last")


def test_a_property_fills_its_field_by_either_name() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Settings:
        path: str = prop("new.path", "", str, also="old.path")

    rows = properties_of(Settings)
    assert [(row.name, row.field) for row in rows] == [
        ("new.path", "path"),
        ("old.path", "path"),
    ]
    assert Settings().path == ""


def test_every_name_stands_once() -> None:
    rows = [row.name.lower() for row in (*OPTIONS, *CONSUMER_OPTIONS)]
    kafka = [row.name for row in properties_of(ClientSettings)]
    assert [name for name, count in Counter(rows + kafka).items() if count > 1] == []
    assert rows[: len(OPTIONS)] == [row.name.lower() for row in rows_of(SourceOptions)]
    assert len(fields(ClientSettings)) <= len(kafka)


def named_violations() -> Iterator[tuple[str, str]]:
    """Every literal name that a check of options says is wrong, with its module."""
    for path in sorted(HERE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "violations.add":
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield path.name, name.value


def test_what_is_said_to_be_wrong_is_an_option() -> None:
    known = {row.name for row in (*OPTIONS, *TOPIC_OPTIONS)} | {"objectStore."}
    found = list(named_violations())
    assert len(found) > 20
    assert [each for each in found if each[1] not in known] == []
