"""The algebra of offset ranges against plain sets of integers, and the proposal's own numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies  # noqa: F401  registers the hypothesis profiles
from keyrange.core.commits.ranges import (
    Ranges,
    amend,
    coalesce,
    contains,
    gaps,
    intersect,
    of_offsets,
    purge,
    subtract,
)
from keyrange.core.offsets import OFFSET_MAX, OffsetRange

WIDTH = 40
BASES = [0, 2**31 - WIDTH // 2, 2**53 - WIDTH // 2, OFFSET_MAX - WIDTH]
OPERATIONS_PER_BASE = 30_000


def inclusive(*pairs: tuple[int, int]) -> Ranges:
    """Ranges as the proposal writes them, both ends included."""
    return tuple(OffsetRange(lo, hi + 1) for lo, hi in pairs)


def as_set(ranges: Iterable[OffsetRange]) -> set[int]:
    return {at for each in ranges for at in range(each.from_offset, each.until_offset)}


def is_shortest(ranges: Ranges) -> bool:
    """In order, none empty, no two that touch."""
    apart = all(a.until_offset < b.from_offset for a, b in pairwise(ranges))
    return apart and all(each.from_offset < each.until_offset for each in ranges)


def check(found: Ranges, expected: set[int]) -> None:
    assert as_set(found) == expected
    assert is_shortest(found)


def check_purge(committed: int, done: list[OffsetRange]) -> None:
    moved, left = purge(committed, done)
    expected = as_set(done)
    at = committed
    while at in expected or any(at <= each for each in expected if each < committed):
        at += 1
    assert moved == at
    check(left, {each for each in expected if each >= at})


def check_one(which: int, one: list[OffsetRange], other: list[OffsetRange], at: int) -> None:
    span = OffsetRange(at, at + len(one))
    if which == 0:
        check(coalesce(one), as_set(one))
    elif which == 1:
        check(subtract(one, other), as_set(one) - as_set(other))
    elif which == 2:
        check(intersect(one, other), as_set(one) & as_set(other))
    elif which == 3:
        check(gaps(one, span), as_set([span]) - as_set(one))
    elif which == 4:
        check(of_offsets(each.from_offset for each in one), {each.from_offset for each in one})
    elif which == 5:
        assert contains(coalesce(one), at) == (at in as_set(one))
    elif which == 6:
        check_purge(at, one)
    else:
        fetched = set(range(span.from_offset, span.until_offset + 3))
        range_fetched = OffsetRange(span.from_offset, span.until_offset + 3)
        committed = other[0].from_offset if other else at
        expected = {each for each in fetched if each >= committed} - as_set(one)
        check(amend(committed, one, range_fetched), expected)


@pytest.mark.parametrize("base", BASES)
def test_the_algebra_is_that_of_sets(base: int) -> None:
    random = Random(base)

    def some() -> list[OffsetRange]:
        pairs = [
            (random.randrange(WIDTH), random.randrange(-2, 9)) for _ in range(random.randrange(7))
        ]
        return [OffsetRange(base + at, base + min(at + size, WIDTH)) for at, size in pairs]

    for number in range(OPERATIONS_PER_BASE):
        check_one(number % 8, some(), some(), base + random.randrange(WIDTH))


some_ranges = st.lists(
    st.tuples(st.integers(0, WIDTH), st.integers(-1, 8)).map(
        lambda pair: OffsetRange(pair[0], pair[0] + pair[1])
    ),
    max_size=6,
)


@given(st.integers(0, 7), some_ranges, some_ranges, st.integers(0, WIDTH))
def test_the_algebra_is_that_of_sets_by_small_examples(
    which: int, one: list[OffsetRange], other: list[OffsetRange], at: int
) -> None:
    check_one(which, one, other, at)


@given(some_ranges, some_ranges)
def test_what_is_in_both_and_what_is_left_are_the_whole(
    one: list[OffsetRange], other: list[OffsetRange]
) -> None:
    both, left = intersect(one, other), subtract(one, other)
    assert coalesce((*both, *left)) == coalesce(one)
    assert intersect(both, left) == ()


def test_the_proposal_coalesces() -> None:
    stored = inclusive((45, 47), (50, 50))
    assert coalesce((*stored, *inclusive((48, 49)))) == inclusive((45, 50))


def test_the_proposal_moves_the_committed_offset() -> None:
    """Offset 42 is committed, so 43 is the next; with 43 and 44 done, so is all up to 47."""
    done = coalesce((*inclusive((45, 47)), *inclusive((43, 44))))
    assert purge(42 + 1, done) == (47 + 1, ())
    assert purge(42 + 1, inclusive((45, 47), (50, 50))) == (43, inclusive((45, 47), (50, 50)))
    assert purge(42 + 1, (*done, *inclusive((50, 50)))) == (48, inclusive((50, 50)))


def test_the_proposal_amends_gaps() -> None:
    """Offset 40 is committed; what is fetched holds it, and ranges that are done."""
    done = inclusive((43, 45), (48, 49))
    (fetched,) = inclusive((40, 50))
    assert amend(40 + 1, done, fetched) == inclusive((41, 42), (46, 47), (50, 50))


def test_a_limit_of_ranges_is_no_matter_of_speed() -> None:
    """60,000 ranges are what the proposal counts in a request."""
    offsets = range(0, 120_000, 2)
    ranges = of_offsets(offsets)
    assert len(ranges) == 60_000
    assert purge(119_998, ranges) == (119_999, ())
    assert len(gaps(ranges, OffsetRange(0, 120_000))) == 60_000
    assert contains(ranges, 77_776)
    assert not contains(ranges, 77_777)
