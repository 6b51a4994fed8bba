"""Key ranges against sets of points: every hash is somewhere, and nowhere twice.

Whether a hash is in a range changes at the range's bounds only, so the hashes at all bounds and
beside them stand for the whole space.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import (
    HASH_MAX,
    SPACE,
    KeyRange,
    complement,
    cover_once,
    merge,
    overlap,
    read_ranges,
    split_at_weights,
    split_evenly,
    write_ranges,
)
from keyrange.model.reader_ranges import NOBODY, Placement, placement_of
from samples import strategies  # noqa: F401  registers the hypothesis profiles

END = HASH_MAX + 1
# Few, so that ranges often touch; some beside one another, some at the ends.
BOUNDS = [0, 1, 2, 3, 1000, 2**53, 2**62 - 1, 2**62, 2**62 + 1, HASH_MAX - 1, HASH_MAX, END]
spans = st.sets(st.sampled_from(BOUNDS), min_size=2, max_size=2).map(
    lambda two: KeyRange(*sorted(two))
)
some = st.lists(spans, max_size=6)
cuts = st.sets(st.sampled_from(BOUNDS[1:-1])).map(
    lambda inside: [KeyRange(a, b) for a, b in pairwise([0, *sorted(inside), END])]
)


def points(ranges: Iterable[KeyRange]) -> list[int]:
    bounds = {0, END} | {bound for each in ranges for bound in (each.from_hash, each.until_hash)}
    beside = {bound + step for bound in bounds for step in (-1, 0, 1)}
    return sorted(point for point in beside if 0 <= point <= HASH_MAX)


def times(ranges: Iterable[KeyRange], point: int) -> int:
    """In how many of the ranges a hash is."""
    return sum(each.from_hash <= point < each.until_hash for each in ranges)


def follow_one_another(span: KeyRange, pieces: Sequence[KeyRange]) -> bool:
    joined = all(a.until_hash == b.from_hash for a, b in pairwise(pieces))
    return joined and (pieces[0].from_hash, pieces[-1].until_hash) == (
        span.from_hash,
        span.until_hash,
    )


@pytest.mark.parametrize("bounds", [(0, 0), (5, 4), (-1, 4), (0, END + 1), (END, END)])
def test_what_holds_no_hash_is_no_range(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no range of hashes"):
        KeyRange(*bounds)


@given(span=spans, wanted=st.sampled_from([-1, 0, 1, 2, 3, 7, 64, 1000]))
def test_an_even_split_differs_by_one_hash_at_most(span: KeyRange, wanted: int) -> None:
    pieces = split_evenly(span, wanted)
    assert follow_one_another(span, pieces)
    sizes = {each.size for each in pieces}
    assert max(sizes) - min(sizes) <= 1
    assert len(pieces) == max(min(wanted, span.size), 1)


weighed = st.dictionaries(
    st.sampled_from([*range(40), *BOUNDS[4:-1]]),
    st.sampled_from([0, 1, 1, 1, 2, 5, 100]),
    max_size=25,
)


@given(span=spans, weights=weighed, wanted=st.integers(1, 9))
def test_a_split_at_weights_is_off_by_the_heaviest_hash_at_most(
    span: KeyRange, weights: dict[int, float], wanted: int
) -> None:
    pieces = split_at_weights(span, weights, wanted)
    inside = {at: weight for at, weight in weights.items() if span.contains(at) and weight > 0}
    assert follow_one_another(span, pieces)
    if not inside:
        assert pieces == split_evenly(span, wanted)
        return
    assert len(pieces) <= wanted
    share = sum(inside.values()) / wanted
    held = [[at for at in inside if each.contains(at)] for each in pieces]
    assert all(held)
    for own in held:
        assert sum(inside[at] for at in own) <= share + max(inside.values()) + 1e-6
    for at, weight in inside.items():
        if weight > 2 * share + 1e-6:
            assert [at] in held


@given(
    places=st.sets(st.integers(0, 40) | st.integers(0, HASH_MAX), min_size=1, max_size=40),
    wanted=st.integers(1, 60),
)
def test_hashes_of_equal_weight_fill_as_many_ranges_as_there_can_be(
    places: set[int], wanted: int
) -> None:
    pieces = split_at_weights(SPACE, dict.fromkeys(places, 3.0), wanted)
    counts = [sum(map(each.contains, places)) for each in pieces]
    assert len(pieces) == min(wanted, len(places))
    assert max(counts) - min(counts) <= 1


@given(ranges=some)
def test_merging_keeps_the_hashes_and_leaves_gaps_between(ranges: list[KeyRange]) -> None:
    merged = merge(ranges)
    assert all(a.until_hash < b.from_hash for a, b in pairwise(merged))
    for point in points(ranges):
        assert times(merged, point) == (times(ranges, point) > 0)


@given(ranges=some)
def test_the_complement_is_what_is_in_none(ranges: list[KeyRange]) -> None:
    rest = complement(ranges)
    assert rest == merge(rest)
    for point in points(ranges):
        assert times(rest, point) == (times(ranges, point) == 0)
    assert complement(rest) == merge(ranges)


@given(ranges=some)
def test_an_overlap_is_two_ranges_that_share_a_hash(ranges: list[KeyRange]) -> None:
    found = overlap(ranges)
    assert (found is not None) == any(times(ranges, point) > 1 for point in points(ranges))
    if found is not None:
        assert any(times(found, point) == 2 for point in points(ranges))
        assert Counter(found) <= Counter(ranges)


@given(ranges=st.one_of(some, cuts, cuts.flatmap(lambda cut: st.lists(st.sampled_from(cut)))))
def test_a_cover_has_every_hash_once(ranges: list[KeyRange]) -> None:
    once = all(times(ranges, point) == 1 for point in points(ranges))
    assert cover_once(ranges) == cover_once(iter(ranges)) == once


@given(cut=cuts, data=st.data())
def test_ranges_are_read_in_order_as_they_were_written(
    cut: list[KeyRange], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(cut), unique=True))
    document = json.loads(json.dumps(write_ranges(chosen)))
    assert all(0 <= low <= high <= HASH_MAX for low, high in document)
    assert read_ranges(document) == sorted(chosen)
    assert [str(each) for each in sorted(chosen)] == [str(each) for each in sorted(document)]


@given(ranges=some)
def test_overlaps_are_not_read(ranges: list[KeyRange]) -> None:
    if overlap(ranges) is None:
        assert read_ranges(write_ranges(ranges)) == sorted(ranges)
    else:
        with pytest.raises(ValueError, match=r"^\[\d+, \d+\] and \[\d+, \d+\] overlap$"):
            read_ranges(write_ranges(ranges))


def test_a_thousand_trees_of_splits_and_merges_cover_the_space_once() -> None:
    for seed in range(1_000):
        random = Random(seed)
        ranges = [SPACE]
        for _ in range(random.randint(1, 15)):
            at = random.randrange(len(ranges))
            span = ranges[at]
            how = random.random()
            if how < 0.35:
                ranges[at : at + 1] = split_evenly(span, random.choice((1, 2, 3, 16)))
            elif how < 0.65:
                hashes = [random.randint(span.from_hash, span.until_hash - 1) for _ in range(9)]
                weights = {each: random.choice((0.0, 1.0, 50.0)) for each in hashes}
                ranges[at : at + 1] = split_at_weights(span, weights, random.randint(1, 5))
            else:
                until = random.randint(at + 1, min(at + 5, len(ranges)))
                [ranges[at:until]] = [merge(ranges[at:until])]
            assert cover_once(ranges), seed
            assert follow_one_another(SPACE, ranges), seed
        probe = random.randint(0, HASH_MAX)
        assert times(ranges, probe) == 1, seed


@st.composite
def readers(draw: st.DrawFn) -> list[list[KeyRange]]:
    """What each reader reads of one cut; some of it may be nobody's."""
    cut = draw(cuts)
    owners = draw(st.lists(st.integers(NOBODY, 3), min_size=len(cut), max_size=len(cut)))
    read: list[list[KeyRange]] = [[] for _ in range(max(owners) + 1)]
    for span, owner in draw(st.permutations(list(zip(cut, owners, strict=True)))):
        if owner != NOBODY:
            read[owner].append(span)
    return read


def owner_of(placement: Placement, point: int) -> int:
    """As the compiled pass finds it."""
    return placement.owners[bisect_left(placement.uppers, point)]


def is_a_cut(placement: Placement) -> bool:
    bounds = [-1, *placement.uppers]
    return all(a < b for a, b in pairwise(bounds)) and bounds[-1] == HASH_MAX


@given(read=readers())
def test_a_placement_gives_each_reader_its_ranges_and_nobody_the_rest(
    read: list[list[KeyRange]],
) -> None:
    placement = placement_of(read)
    assert is_a_cut(placement)
    assert all(a != b for a, b in pairwise(placement.owners))
    assert placement.readers == len(read)
    for point in points(span for own in read for span in own):
        wanted = [reader for reader, own in enumerate(read) if times(own, point)]
        assert owner_of(placement, point) == (wanted[0] if wanted else NOBODY)
    for reader, own in enumerate(read):
        assert placement.of(reader).ranges() == merge(own)
        assert placement.of(reader).of(0) == placement


@given(read=readers())
def test_a_reader_alone_reads_the_same_in_as_few_cells_as_can_be(
    read: list[list[KeyRange]],
) -> None:
    for reader, own in enumerate(read):
        alone = placement_of(read).of(reader).alone()
        assert is_a_cut(alone)
        assert all(a != b for a, b in pairwise(alone.owners))
        assert set(alone.owners) <= {0, NOBODY}
        assert (alone.readers, alone.reader) == (int(bool(own)), 0)
        assert alone.ranges() == merge(own)
        assert alone.alone() == alone


@given(read=readers(), data=st.data())
def test_nothing_is_read_twice(read: list[list[KeyRange]], data: st.DataObject) -> None:
    taken = [span for own in read for span in own]
    if taken:
        span = data.draw(st.sampled_from(taken))
        again = KeyRange(span.from_hash, data.draw(st.sampled_from([span.until_hash, END])))
        with pytest.raises(KeyrangeError, match="two readers of the plan read"):
            placement_of([*read, [again]])
