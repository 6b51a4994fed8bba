"""Names of slots, and what the names of pods say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import InvalidError
from keyrange.members.model.slot_name_syntax import (
    NAME_CHARACTERS_MAX,
    check_name,
    is_short_lived,
    ordinal_of,
    slot_name,
    spark_ordinal,
)


@pytest.mark.parametrize(
    ("pod", "ordinal"),
    [
        ("spark-s-spark-0b1c2d3e4f5a46c7-0-0", 0),
        ("spark-s-spark-0b1c2d3e4f5a46c7-0-7", 7),
        ("spark-s-spark-0b1c2d3e4f5a46c7-1-12", 12),
        ("orders-consumer-0", 0),
        ("orders-10", 10),
        # A counter, random ends, and what Kubernetes would not write.
        ("orders-exec-3", None),
        ("spark-pi-8d5e1a93-exec-12", None),
        ("orders-6d4f5b7c9-x2x7b", None),
        ("orders-6d4f5b7c9-24567", None),
        ("orders-007", None),
        ("orders-1234567", None),
        ("orders", None),
        ("-1", None),
        ("7", None),
        ("", None),
    ],
)
def test_only_a_stateful_sets_pod_has_an_ordinal(pod: str, ordinal: int | None) -> None:
    assert ordinal_of(pod) == ordinal


def test_sparks_own_sets_are_told_from_others() -> None:
    assert spark_ordinal("spark-s-spark-0b1c-0-3") == 3
    assert spark_ordinal("orders-3") is None
    assert is_short_lived("spark-pi-8d5e1a93-exec-12")
    assert not is_short_lived("orders-3")


@pytest.mark.parametrize("name", ["a", "orders-0", "a.b_c-D9", "x" * NAME_CHARACTERS_MAX])
def test_kafka_takes_these(name: str) -> None:
    assert check_name(name, "option") == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * (NAME_CHARACTERS_MAX + 1)]
)
def test_what_kafka_does_not_take_is_refused_with_its_source(name: str) -> None:
    with pytest.raises(InvalidError, match=r"INVALID_MEMBER_NAME.*source=env:SLOT"):
        check_name(name, "env:SLOT")


def test_a_slots_name_is_the_group_and_what_tells_it_apart() -> None:
    assert slot_name("orders", 3) == "orders-3"
    assert slot_name("orders", "host.example", 0) == "orders-host.example-0"


@given(st.text(), st.text(), st.integers(0, 10**6))
def test_any_groups_slots_have_names_that_kafka_takes(one: str, other: str, number: int) -> None:
    names = {slot_name(group, number) for group in (one, other)}
    assert len(names) == len({one, other})
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)
        assert name.endswith(f"-{number}")
