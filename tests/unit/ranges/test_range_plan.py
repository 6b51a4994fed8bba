"""The plan of key ranges: every hash of every offset by one task, and the bytes shared out."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyrange.model.key_ranges import (
    HASH_MAX,
    SPACE,
    KeyRange,
    cover_once,
    merge,
    overlap,
    split_evenly,
)
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.range_plan import (
    RangeEstimate,
    auto_ranges,
    cut_by_bytes,
    cut_line,
    plan_tasks,
    weigh,
)
from samples import strategies  # noqa: F401  registers the hypothesis profiles

TP = [TopicPartition("t", number) for number in range(4)]
BYTES = st.sampled_from([1e-3, 1.0, 2.0, 10.0, 1000.0])


def shared_name(partition: TopicPartition) -> str:
    return f"of-{partition}"


@st.composite
def cells_of(draw: st.DrawFn, partition: TopicPartition) -> list[RangeEstimate]:
    """Ranges of a partition, some of them left to others."""
    spans = split_evenly(SPACE, draw(st.sampled_from([1, 1, 2, 5, 16])))
    left_out = draw(st.just(set()) | st.sets(st.integers(0, len(spans)), max_size=3))
    kept = [span for number, span in enumerate(spans) if number not in left_out] or [SPACE]
    return [RangeEstimate(partition, span, draw(BYTES)) for span in kept]


@st.composite
def lines(draw: st.DrawFn) -> list[RangeEstimate]:
    return [
        cell for partition in TP[: draw(st.integers(1, 4))] for cell in draw(cells_of(partition))
    ]


def by_partition(planned: list[tuple[Split, ...]]) -> dict[TopicPartition, list[Split]]:
    found: dict[TopicPartition, list[Split]] = {}
    for split in (split for task in planned for split in task):
        found.setdefault(split.topic_partition, []).append(split)
    return found


@given(line=lines(), tasks=st.integers(1, 20))
def test_every_hash_of_every_offset_is_read_by_one_task(
    line: list[RangeEstimate], tasks: int
) -> None:
    ranges = {partition: OffsetRange(7, 7 + partition.partition) for partition in TP}
    planned = plan_tasks(line, ranges, tasks, shared_name)
    assert 1 <= len(planned) <= tasks
    assert all(planned)
    read = by_partition(planned)
    assert read.keys() == {cell.partition for cell in line}
    for partition, splits in read.items():
        spans = [cell.span for cell in line if cell.partition == partition]
        offsets = {(split.from_offset, split.until_offset) for split in splits}
        assert offsets == {(7, 7 + partition.partition)}
        if splits[0].placement is None:
            assert (len(splits), cover_once(spans), splits[0].shared) == (1, True, "")
            continue
        placements = [split.placement for split in splits]
        assert len(splits) > 1 or not cover_once(spans)
        assert sorted(each.reader for each in placements) == list(range(len(splits)))
        assert {each.of(0) for each in placements} == {placements[0].of(0)}
        owned = [span for each in placements for span in each.ranges()]
        assert merge(owned) == merge(spans)
        assert overlap(owned) is None
        names = {split.shared for split in splits}
        assert names == ({shared_name(partition)} if len(splits) > 1 else {""})


@given(line=lines(), tasks=st.integers(1, 20))
def test_a_task_reads_a_partition_once_and_first_what_it_shares(
    line: list[RangeEstimate], tasks: int
) -> None:
    planned = plan_tasks(line, dict.fromkeys(TP, OffsetRange(0, 1)), tasks, shared_name)
    for task in planned:
        partitions = [split.topic_partition for split in task]
        assert len(set(partitions)) == len(partitions)
        shared = [bool(split.shared) for split in task]
        assert shared == sorted(shared, reverse=True)
    for partition, splits in by_partition(planned).items():
        wanted = sum(cell.bytes for cell in line if cell.partition == partition)
        assert abs(sum(split.bytes_estimate for split in splits) - wanted) <= 0.5 * len(splits)


def test_a_line_of_whole_partitions_shares_nothing() -> None:
    line = [RangeEstimate(p, span, 1.0) for p in TP for span in split_evenly(SPACE, 16)]
    for tasks in (1, 2, 4):
        planned = plan_tasks(line, dict.fromkeys(TP, OffsetRange(0, 9)), tasks, shared_name)
        assert [len(task) for task in planned] == [4 // tasks] * tasks
        assert all(split.placement is None for task in planned for split in task)


def test_a_hot_range_has_a_task_of_its_own_and_the_others_use_the_other_cores() -> None:
    spans = split_evenly(SPACE, 16)
    line = [RangeEstimate(TP[0], span, 900.0 if at == 5 else 10.0) for at, span in enumerate(spans)]
    planned = plan_tasks(line, {TP[0]: OffsetRange(0, 9)}, 4, shared_name)
    read = [merge(split.placement.ranges()) for [split] in planned if split.placement]
    assert read[0] == [spans[5]]
    assert [sum(each.size for each in own) // spans[0].size for own in read[1:]] == [5, 5, 5]


weights = st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1.0, 2.0, 3.0, 50.0]), max_size=30)


@given(weights=weights, pieces=st.integers(-1, 40))
def test_a_line_is_cut_into_stretches_of_about_equal_weight(
    weights: list[float], pieces: int
) -> None:
    items = list(enumerate(weights))
    stretches = cut_line(items, lambda item: item[1], pieces)
    assert sorted(item for stretch in stretches for item in stretch) == items
    assert len(stretches) <= max(pieces, 1)
    assert all(stretches)
    assert all(stretch == sorted(stretch) for stretch in stretches)
    share = sum(weights) / max(min(pieces, len(items)), 1)
    long = [stretch for stretch in stretches if len(stretch) > 1]
    assert long == sorted(long)
    for stretch in long:
        heaviest = max(weight for _, weight in stretch)
        assert heaviest <= share * (1 + 1e-9)
        assert sum(weight for _, weight in stretch) <= share + heaviest + 1e-6


@given(weights=weights, more=st.integers(0, 5))
def test_with_as_many_pieces_as_things_each_stands_alone(weights: list[float], more: int) -> None:
    items = list(enumerate(weights))
    stretches = cut_line(items, lambda item: item[1], len(items) + more)
    assert sorted(stretches) == [[item] for item in items]


def test_what_weighs_most_is_started_first() -> None:
    assert cut_line([1, 1, 9, 1, 8], float, 4) == [[9], [8], [1, 1], [1]]


partitions = st.dictionaries(
    st.sampled_from(TP),
    st.tuples(
        st.integers(0, 100),
        st.sampled_from([1, 2, 3, 7, 100, 1000]),
        st.sampled_from([0.001, 1.0, 30.0, 100.0, 4096.0]),
    ),
    min_size=1,
)


@given(given=partitions, tasks=st.integers(1, 40))
def test_a_cut_by_bytes_has_every_offset_once_in_pieces_even_but_for_a_record(
    given: dict[TopicPartition, tuple[int, int, float]], tasks: int
) -> None:
    ranges = {p: OffsetRange(start, start + count) for p, (start, count, _) in given.items()}
    sizes = {p: per_offset for p, (_, _, per_offset) in given.items()}
    planned = cut_by_bytes(ranges, sizes, tasks)
    assert all(planned)
    read = by_partition(planned)
    assert read.keys() == ranges.keys()
    for partition, splits in read.items():
        pieces = sorted((split.from_offset, split.until_offset) for split in splits)
        span = ranges[partition]
        assert all(a < b for a, b in pieces)
        assert all(a[1] == b[0] for a, b in pairwise(pieces))
        assert (pieces[0][0], pieces[-1][1]) == (span.from_offset, span.until_offset)
        assert all(split.placement is None and not split.shared for split in splits)

    def size(split: Split) -> float:
        return (split.until_offset - split.from_offset) * sizes[split.topic_partition]

    held = [sum(map(size, task)) for task in planned]
    held += [0.0] * (tasks - len(planned))
    share, record = sum(held) / tasks, max(sizes.values())
    assert all(abs(each - share) <= record + 1e-6 for each in held)
    assert len(held) == tasks
    for split in (split for task in planned for split in task):
        assert split.bytes_estimate == round(size(split))


def test_a_cut_by_bytes_of_offsets_at_their_limits() -> None:
    ranges = {TP[0]: OffsetRange(0, 2**63 - 1), TP[1]: OffsetRange(5, 6)}
    planned = cut_by_bytes(ranges, {TP[0]: 1.0, TP[1]: 0.0}, 3)
    pieces = [split for task in planned for split in task]
    assert sum(split.until_offset - split.from_offset for split in pieces) == 2**63
    assert cut_by_bytes({}, {}, 4) == []


def counts(sizes: list[int], cores: int) -> list[int]:
    ranges = {TP[at]: OffsetRange(0, size) for at, size in enumerate(sizes)}
    found = auto_ranges(ranges, dict.fromkeys(ranges, 3.0), cores)
    return [found[partition] for partition in ranges]


@pytest.mark.parametrize(
    ("sizes", "cores", "expected"),
    [
        ([100], 1, [1]),
        ([100], 4, [16]),
        ([100], 10_000, [1024]),
        ([100, 100, 100, 100], 4, [1, 1, 1, 1]),
        ([100, 100], 1, [1, 1]),
        ([100, 100], 4, [8, 8]),
        ([9_700, 100, 100, 100], 8, [32, 1, 1, 1]),
        ([0, 100], 4, [1, 16]),
    ],
)
def test_a_hot_partition_gets_the_cores(sizes: list[int], cores: int, expected: list[int]) -> None:
    assert counts(sizes, cores) == expected


@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=4), cores=st.integers(1, 64))
def test_there_are_ranges_for_all_cores(sizes: list[int], cores: int) -> None:
    found = counts(sizes, cores)
    assert sum(max(count // 4, 1) for count in found) >= cores
    for size, count in zip(sizes, found, strict=True):
        assert (count > 1) == (size * cores > sum(sizes))


@given(
    key_hashes=st.lists(st.integers(0, 50) | st.integers(0, HASH_MAX), max_size=60),
    bounds=st.sets(st.sampled_from([1, 2, 30, 50, 51, 2**60, 2**62]), max_size=5),
)
@example(key_hashes=[0] * 16 + [1], bounds={1, 2})
def test_bytes_are_expected_where_the_sample_lies(key_hashes: list[int], bounds: set[int]) -> None:
    spans = [KeyRange(a, b) for a, b in pairwise([0, *sorted(bounds), HASH_MAX + 1])]
    cells = weigh(TP[1], spans, 1000.0, key_hashes)
    assert [(cell.partition, cell.span) for cell in cells] == [(TP[1], span) for span in spans]
    assert sum(cell.bytes for cell in cells) == pytest.approx(1000.0)
    by_chance = []
    for cell in cells:
        found, even = (
            sum(map(cell.span.contains, key_hashes)),
            len(key_hashes) * cell.span.size / SPACE.size,
        )
        if max(found, even) > 4 and abs(found - even) > 4 * sqrt(even):
            assert cell.bytes == pytest.approx(1000.0 * found / len(key_hashes))
        else:
            by_chance.append(cell.bytes / cell.span.size)
            assert not cell.hot
        assert not cell.hot or cell.bytes > 2 * 1000.0 * cell.span.size / SPACE.size
    assert by_chance == pytest.approx(by_chance[:1] * len(by_chance))


def test_a_sample_of_ranges_that_are_alike_leaves_them_alike() -> None:
    """Else a few records more on one side would move ranges from one task to another."""
    spans = split_evenly(SPACE, 16)
    for seed in range(50):
        chance = Random(seed)
        sample = [chance.randint(0, HASH_MAX) for _ in range(300)]
        cells = weigh(TP[0], spans, 1600.0, sample)
        assert [cell.bytes for cell in cells] == pytest.approx([100.0] * 16)


def test_what_others_read_is_not_expected() -> None:
    half = split_evenly(SPACE, 2)[:1]
    assert weigh(TP[0], half, 1000.0, [5, 6, HASH_MAX, HASH_MAX - 1])[0].bytes == 500.0


def test_a_hot_range_is_found_and_an_even_sample_has_none() -> None:
    spans = split_evenly(SPACE, 16)
    even = [span.from_hash + at for span in spans for at in range(50)]
    assert not any(cell.hot for cell in weigh(TP[0], spans, 1e6, even))
    hot = [*even, *[spans[9].from_hash] * 400]
    cells = weigh(TP[0], spans, 1e6, hot)
    assert [cell.span for cell in cells if cell.hot] == [spans[9]]
    assert cells[9].bytes > 300_000
    assert not weigh(TP[0], [SPACE], 1e6, hot)[0].hot
    assert [cell.bytes for cell in weigh(TP[0], spans, 1600.0, [])] == [100.0] * 16
