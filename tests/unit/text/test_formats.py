"""Figures in the form and the unit that people would take."""

from __future__ import annotations

import pytest

from keyrange.text.formats import (
    are,
    counted,
    moment,
    number,
    percent,
    percent_of_hashes,
    rounded_span,
    short_span,
    size_text,
    span,
)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.00 KiB"),
        (10 * 2**30, "10.0 GiB"),
        (2**62, "4.00 EiB"),
    ],
)
def test_sizes(count: int, expected: str) -> None:
    assert size_text(count) == expected


def test_numbers_and_shares_are_nothing_where_nothing_is_known() -> None:
    assert [number(each) for each in (None, 0, 1_234_567, 1_234.5)] == [
        *("", "0", "1,234,567", "1,234.50")
    ]
    assert [percent(each) for each in (None, 0.0, 0.1234, 1)] == ["", "0.0%", "12.3%", "100.0%"]


def test_one_is_not_said_as_many() -> None:
    assert [counted(each, "hole") for each in (0, 1, 2_000)] == ["0 holes", "1 hole", "2,000 holes"]
    assert [are(each, "record") for each in (1, 2)] == ["1 record is", "2 records are"]


@pytest.mark.parametrize(
    ("ms", "in_two_units", "to_the_tenth", "rounded"),
    [
        (0, "0 s", "0.0 s", "0 ms"),
        (999, "0 s", "1.0 s", "999 ms"),
        (9_940, "9 s", "9.9 s", "9.9 s"),
        (90_000, "1 min", "1 min", "1.5 min"),
        (7_800_000, "2 h 10 min", "2 h 10 min", "2.2 h"),
        (3 * 86_400_000, "3 d 0 h", "3 d 0 h", "3.0 d"),
    ],
)
def test_spans(ms: int, in_two_units: str, to_the_tenth: str, rounded: str) -> None:
    assert (span(ms), short_span(ms), rounded_span(ms)) == (in_two_units, to_the_tenth, rounded)


def test_a_span_that_is_not_known_is_nothing() -> None:
    assert rounded_span(None) == ""


def test_a_moment_is_to_the_second_and_what_is_no_time_stays() -> None:
    assert moment("2026-05-01T12:00:59.123+00:00") == "2026-05-01 12:00:59"
    assert moment("99999999999999999 ms") == "99999999999999999 ms"


def test_the_hash_space_is_whole() -> None:
    assert percent_of_hashes([0, 2**63 - 1]) == (0.0, 100.0)
    assert percent_of_hashes([2**62, 2**62]) == (50.0, pytest.approx(50))
