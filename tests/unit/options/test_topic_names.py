"""A name that no topic can have: Kafka's rule stands in the error, wherever an option names one."""

from __future__ import annotations

import json

import pytest

from keyrange.errors import InvalidError
from keyrange.options import parse_options

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
RULE = "Kafka allows 1 to 249 characters of [a-zA-Z0-9._-], and neither . nor .."
LONG = "a" * 250


def refused(options: dict[str, str]) -> str:
    with pytest.raises(InvalidError) as caught:
        parse_options(SERVERS | options)
    return caught.value.message


@pytest.mark.parametrize("name", [".", "..", "a b", "a*", "ü", "a;b", LONG])
@pytest.mark.parametrize("option", ["subscribe", "assign", "keyRanges"])
def test_the_rule_is_said(name: str, option: str) -> None:
    given = {"subscribe": name, "assign": json.dumps({name: [0]}), "keyRanges": f'{{"{name}": []}}'}
    message = refused(({} if option == "assign" else {"subscribe": "t"}) | {option: given[option]})
    assert f"option '{option}' must " in message
    shown = name if len(name) < 40 else "a name of 250 characters that begins"
    assert shown in message
    assert f"cannot be a topic: {RULE}" in message


def test_a_long_name_is_shown_in_part() -> None:
    message = refused({"subscribe": f"t,{LONG}"})
    assert f"begins '{LONG[:40]}'" in message
    assert LONG[:41] not in message


def test_the_longest_name_is_taken() -> None:
    parse_options(SERVERS | {"subscribe": LONG[:249]})
