"""The small parsers: what they take, what they refuse, and that the text says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.options.value_parsers import (
    Violations,
    argument_us,
    boolean,
    duration_ms,
    duration_or_ms,
    int_between,
    iso_duration_ms,
    ms_between,
    one_of,
    part_of_one,
    size_between,
    text,
)
from samples import strategies  # noqa: F401  registers the hypothesis profiles

GIB = 2**30
TAKEN = [
    (boolean, "true", True),
    (boolean, " FALSE ", False),
    (int_between(-1, 5), " -1 ", -1),
    (int_between(-1, 5), "5", 5),
    (size_between(0, GIB), "0", 0),
    (size_between(0, GIB), "7b", 7),
    (size_between(0, GIB), "1k", 1024),
    (size_between(0, GIB), "2KB", 2048),
    (size_between(0, GIB), "3m", 3 << 20),
    (size_between(0, GIB), " 3MB ", 3 << 20),
    (size_between(0, GIB), "1g", GIB),
    (size_between(0, GIB), "1Gb", GIB),
    (duration_ms, "250ms", 250),
    (duration_ms, "0", 0),
    (duration_ms, "1 day", 86_400_000),
    (duration_ms, "10 Minutes", 600_000),
    (duration_ms, "2 weeks", 1_209_600_000),
    (duration_or_ms, "250", 250),
    (duration_or_ms, "15m", 900_000),
    (ms_between(1, 900_000), "15m", 900_000),
    (ms_between(1, 900_000), " 1 ", 1),
    (duration_ms, "1500us", 1),
    (duration_ms, "1us", 1),
    (duration_ms, "0us", 0),
    (duration_ms, " 10S ", 10_000),
    (duration_ms, "15m", 900_000),
    (duration_ms, "2min", 120_000),
    (duration_ms, "1h", 3_600_000),
    (duration_ms, "1d", 86_400_000),
    (iso_duration_ms, "PT0S", 0),
    (iso_duration_ms, " PT5M ", 300_000),
    (iso_duration_ms, "p1dt2h3m4.05s", 93_784_050),
    (iso_duration_ms, "P2D", 172_800_000),
    (iso_duration_ms, "PT90M", 5_400_000),
    (part_of_one, "0", 0.0),
    (part_of_one, " 1.0 ", 1.0),
    (part_of_one, ".25", 0.25),
    (one_of("a", "b"), " a ", "a"),
    (one_of("A", upper=True), "a", "A"),
    (text, " as it is ", " as it is "),
]


@pytest.mark.parametrize(("parse", "given", "expected"), TAKEN)
def test_values_are_taken(parse: Callable[[str], object], given: str, expected: object) -> None:
    assert parse(given) == expected
    assert type(parse(given)) is type(expected)


def test_arguments_keep_their_microseconds() -> None:
    """A window of 1500us became one of a millisecond."""
    found = [argument_us("size", each) for each in ("1500us", "999us", "1ms", "2 weeks")]
    assert found == [1500, 999, 1000, 1_209_600_000_000]


REFUSED = [
    (duration_ms, "x"),
    (duration_ms, "-5s"),
    (duration_ms, "1.5s"),
    (duration_ms, "24"),
    (duration_ms, "5 months"),
    (duration_ms, "5 hs"),
    (duration_or_ms, "2.5"),
    *[
        (iso_duration_ms, each)
        for each in ("", "P", "PT", "5m", "P1DT", "P1W", "P1M", "P1Y", "PT-5M", "-PT5M", "PT5M5H")
    ],
    *[
        (iso_duration_ms, each)
        for each in ("PT1.S", "PT.5S", "PT1.5M", "PT5", "PT\u0665M", "PT5M x")
    ],
    *[
        (part_of_one, each)
        for each in (
            "",
            "x",
            "-0.1",
            "1.1",
            "1e-1",
            "nan",
            "inf",
            "0,5",
            "1_0",
            ".",
            "1.",
            "\u0661",
        )
    ],
    (boolean, "yes"),
    (boolean, ""),
    (boolean, "1"),
    (int_between(1, 5), "0"),
    (int_between(1, 5), "6"),
    *((ms_between(2_000, 60_000), each) for each in ("1s", "2m", "1999", "60001", "-3000", "5x")),
    (int_between(1, 5), "1.0"),
    (int_between(1, 5), "a"),
    (int_between(1, 5), ""),
    (int_between(1, 5), "9" * 5_000),
    (size_between(1, GIB), "0"),
    (size_between(1, GIB), "2g"),
    (size_between(1, GIB), "-1"),
    (size_between(1, GIB), "1.5m"),
    (size_between(1, GIB), "1t"),
    (size_between(1, GIB), "m"),
    (size_between(1, GIB), "1kk"),
    (size_between(1, GIB), "1 m m"),
    (size_between(1, GIB), ""),
    (one_of("a"), "A"),
    (one_of("a"), ""),
]


@pytest.mark.parametrize(("parse", "given"), REFUSED)
def test_values_are_refused_with_a_text_that_follows_the_options_name(
    parse: Callable[[str], object], given: str
) -> None:
    with pytest.raises(ValueError, match=r"^must be "):
        parse(given)


@given(st.text(max_size=12))
def test_no_text_breaks_a_parser(value: str) -> None:
    for parse in (boolean, int_between(0, 9), one_of("a")):
        message = "must be "
        try:
            parse(value)
        except ValueError as failure:
            message = str(failure)
        assert message.startswith("must be ")


def test_violations_are_collected_in_the_order_found() -> None:
    violations = Violations()
    with violations.collecting("one"):
        boolean("x")
    with violations.collecting("two"):
        boolean("true")
    violations.add("three", "is wrong")
    assert violations.messages == [
        "option 'one' must be true or false, not 'x'",
        "option 'three' is wrong",
    ]


def test_only_value_errors_are_collected() -> None:
    violations = Violations()
    with pytest.raises(KeyError), violations.collecting("one"):
        raise KeyError("a bug")
    assert violations.messages == []
