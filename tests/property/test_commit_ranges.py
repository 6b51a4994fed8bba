"""The algebra of offset ranges against plain sets of integers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.offset_range_sets import Ranges, coalesce, subtract
from keyrange.model.offsets import OFFSET_MAX, OffsetRange
from project.forms import everyday
from samples import strategies  # noqa: F401  registers the hypothesis profiles

WIDTH = 40
BASES = [0, 2**31 - WIDTH // 2, 2**53 - WIDTH // 2, OFFSET_MAX - WIDTH]
OPERATIONS_PER_BASE = 15_000


def as_set(ranges: Iterable[OffsetRange]) -> set[int]:
    return {at for each in ranges for at in range(each.from_offset, each.until_offset)}


def is_shortest(ranges: Ranges) -> bool:
    """In order, none empty, no two that touch."""
    apart = all(a.until_offset < b.from_offset for a, b in pairwise(ranges))
    return apart and all(each.from_offset < each.until_offset for each in ranges)


def check(found: Ranges, expected: set[int]) -> None:
    assert as_set(found) == expected
    assert is_shortest(found)


def check_one(which: int, one: list[OffsetRange], other: list[OffsetRange], at: int) -> None:
    span = OffsetRange(at, at + len(one))
    if which == 0:
        check(coalesce(one), as_set(one))
    elif which == 1:
        check(subtract(one, other), as_set(one) - as_set(other))
    else:
        check(subtract([span], one), as_set([span]) - as_set(one))


@pytest.mark.parametrize("base", everyday(*BASES[::-1]))
def test_the_algebra_is_that_of_sets(base: int) -> None:
    random = Random(base)

    def some() -> list[OffsetRange]:
        pairs = [
            (random.randrange(WIDTH), random.randrange(-2, 9)) for _ in range(random.randrange(7))
        ]
        return [OffsetRange(base + at, base + min(at + size, WIDTH)) for at, size in pairs]

    for number in range(OPERATIONS_PER_BASE):
        check_one(number % 3, some(), some(), base + random.randrange(WIDTH))


some_ranges = st.lists(
    st.tuples(st.integers(0, WIDTH), st.integers(-1, 8)).map(
        lambda pair: OffsetRange(pair[0], pair[0] + pair[1])
    ),
    max_size=6,
)


@given(st.integers(0, 2), some_ranges, some_ranges, st.integers(0, WIDTH))
def test_the_algebra_is_that_of_sets_by_small_examples(
    which: int, one: list[OffsetRange], other: list[OffsetRange], at: int
) -> None:
    check_one(which, one, other, at)


def test_a_limit_of_ranges_is_no_matter_of_speed() -> None:
    """60,000 ranges are what the proposal counts in a request."""
    ranges = coalesce(OffsetRange(at, at + 1) for at in range(0, 120_000, 2))
    assert len(ranges) == 60_000
    assert len(subtract([OffsetRange(0, 120_000)], ranges)) == 60_000
    assert subtract(ranges, ranges) == ()
