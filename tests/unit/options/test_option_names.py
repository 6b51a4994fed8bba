"""What an option is told that does not exist."""

from __future__ import annotations

import pytest

from keyrange.errors import InvalidError
from keyrange.options import check_names, parse_options


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("client.id", "'kafka.client.id'"),
        ("fetchMinBytes", "'kafka.fetch.min.bytes'"),
        ("group.id", "'kafka.group.id', or 'commitGroup' for the name in the commit table"),
        ("groupId", "'kafka.group.id', or 'commitGroup' for the name in the commit table"),
    ],
)
def test_a_property_without_its_prefix_is_no_option_that_looks_like_it(
    given: str, meant: str
) -> None:
    """`group.id` looks like groupIdPrefix, which makes a name up."""
    said = f"does not exist (Kafka's property of this name is the option {meant})"
    with pytest.raises(InvalidError) as failure:
        check_names([given])
    assert failure.value.message == f"option '{given}' {said}"


def test_a_question_is_the_end_of_no_sentence() -> None:
    with pytest.raises(InvalidError) as failure:
        check_names(["startingOffset", "subscribes"])
    assert "?." not in str(failure.value)
    assert "?;" not in str(failure.value)


def test_an_option_is_given_once_in_whatever_case() -> None:
    given = {
        "kafka.bootstrap.servers": "h:9092",
        "subscribe": "orders",
        "Subscribe": "payments",
        "kafka.group.id": "a",
        "kafka.GROUP.id": "b",
    }
    with pytest.raises(InvalidError) as failure:
        parse_options(given)
    assert failure.value.message == (
        "option 'Subscribe' is given twice: subscribe is the same option; "
        "option 'kafka.GROUP.id' is given twice: kafka.group.id is the same option"
    )
