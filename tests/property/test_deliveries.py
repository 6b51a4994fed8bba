"""What tasks read of a batch against what it hands out: every record once, and in order.

The log is a list of places, one for each offset; what a split delivers of it is found record by
record, as the compiled pass does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

import strategies  # noqa: F401  registers the hypothesis profiles
from keyrange.core.commits.intake import IntakeLimits, PartitionIntake, plan_intake
from keyrange.core.commits.state import Hole, PartitionState, Piece
from keyrange.core.delivery_plan import plan_cells, plan_deliveries
from keyrange.core.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.core.offsets import TopicPartition
from keyrange.core.range_plan import cut_line
from keyrange.core.splits import Split

PLACES = [0, 1, 2, 2**60, 2**61 - 1, 2**61, 2**62 - 1, 2**62, 2**62 + 5, HASH_MAX - 1, HASH_MAX]
Log = Sequence[int]


@st.composite
def cuts(draw: st.DrawFn) -> list[KeyRange]:
    if draw(st.booleans()):
        return split_evenly(SPACE, draw(st.sampled_from([1, 2, 4, 16])))
    inside = draw(st.sets(st.sampled_from(PLACES[1:])))
    return [KeyRange(a, b) for a, b in pairwise([0, *sorted(inside), HASH_MAX + 1])]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Log, PartitionIntake, list[KeyRange]]:
    """A log, what a batch hands out of it, and the key ranges that it is read in."""
    position = draw(st.integers(0, 25))
    end = position + draw(st.sampled_from([0, 0, 1, 7, 20]))
    log = draw(st.lists(st.sampled_from(PLACES), min_size=end, max_size=end))
    pieces: list[Piece] = []
    for span in draw(cuts()):
        scanned = draw(st.sampled_from([position, position, max(position - 4, 0), 0]))
        own = [at for at in range(scanned) if span.contains(log[at])]
        holes = draw(st.sets(st.sampled_from(own), max_size=6)) if own else set()
        due = st.sampled_from([0, 5, 99])
        found = (Hole(at, log[at], due_ms=draw(due)) for at in sorted(holes))
        pieces.append(Piece(span, scanned, tuple(found)))
    state = PartitionState("", position, tuple(pieces))
    spans = draw(cuts())
    limits = IntakeLimits(draw(st.sampled_from([10_000, 1, 2, 6])))
    due_ms = draw(st.sampled_from([-1, 5, 100]))
    return log, plan_intake(state, spans, end, due_ms, limits, draw(st.booleans())), spans


def delivered(split: Split, log: Log) -> Iterator[int]:
    """The offsets that a task has of a split."""
    for offset in range(split.from_offset, split.until_offset):
        found, place = split.delivery, log[offset]
        if found is not None and offset not in found.offsets:
            at = bisect_left(found.uppers, place)
            if not (found.uppers and found.froms[at] <= offset < found.untils[at]):
                continue
        if split.placement is not None:
            owner = split.placement.owners[bisect_left(split.placement.uppers, place)]
            if owner != split.placement.reader:
                continue
        yield offset


def handed_out(intake: PartitionIntake, log: Log) -> list[int]:
    again = {hole.offset for hole in intake.redelivered}
    return [
        offset
        for offset, place in enumerate(log)
        if offset in again
        or any(
            cell.span.contains(place) and cell.from_offset <= offset < cell.until_offset
            for cell in intake.cells
        )
    ]


@given(
    given_partitions=st.lists(partitions(), min_size=1, max_size=3),
    tasks=st.integers(1, 6),
    size=st.sampled_from([0.01, 100.0, 1e6]),
)
def test_every_record_that_is_handed_out_is_read_once_and_in_order(
    given_partitions: list[tuple[Log, PartitionIntake, list[KeyRange]]], tasks: int, size: float
) -> None:
    names = [TopicPartition("t", number) for number in range(len(given_partitions))]
    logs = {name: log for name, (log, _, _) in zip(names, given_partitions, strict=True)}
    intakes = {name: intake for name, (_, intake, _) in zip(names, given_partitions, strict=True)}
    spans = {name: cut for name, (_, _, cut) in zip(names, given_partitions, strict=True)}
    sizes = dict.fromkeys(names, size)

    cells = plan_cells(intakes, spans, sizes, lambda _: [])
    stretches = cut_line(cells, lambda cell: cell.bytes, tasks) if cells else []
    planned = plan_deliveries(stretches, intakes, sizes, str)

    read: dict[TopicPartition, list[int]] = {name: [] for name in names}
    tasks_of: dict[tuple[TopicPartition, int], set[int]] = {}
    for task, splits in enumerate(planned):
        assert splits
        had: dict[TopicPartition, list[int]] = {}
        for split in splits:
            assert split.from_offset < split.until_offset
            partition = split.topic_partition
            offsets = list(delivered(split, logs[partition]))
            had.setdefault(partition, []).extend(offsets)
            for offset in offsets:
                tasks_of.setdefault((partition, logs[partition][offset]), set()).add(task)
        for partition, offsets in had.items():
            assert all(a < b for a, b in pairwise(offsets))
            read[partition] += offsets
    for name in names:
        assert sorted(read[name]) == handed_out(intakes[name], logs[name])
        if not intakes[name].is_empty:
            span = intakes[name].reach
            assert all(span.from_offset <= offset < span.until_offset for offset in read[name])
    assert all(len(readers) == 1 for readers in tasks_of.values())
    assert len(planned) <= tasks


@given(given_partition=partitions(), tasks=st.integers(1, 6))
def test_who_shares_a_split_means_the_same_and_reads_from_the_position_on(
    given_partition: tuple[Log, PartitionIntake, list[KeyRange]], tasks: int
) -> None:
    name = TopicPartition("t", 0)
    _, intake, spans = given_partition
    cells = plan_cells({name: intake}, {name: spans}, {name: 100.0}, lambda _: [])
    stretches = cut_line(cells, lambda cell: cell.bytes, tasks) if cells else []
    planned = plan_deliveries(stretches, {name: intake}, {name: 100.0}, str)

    shared = [split for splits in planned for split in splits if split.shared]
    alone = [split for splits in planned for split in splits if not split.shared]
    assert len({(s.from_offset, s.until_offset, s.delivery) for s in shared}) <= 1
    assert {s.from_offset for s in shared} <= {intake.start}
    placements = [split.placement for split in shared]
    assert [p.reader for p in placements if p is not None] == list(range(len(shared)))
    assert len({p.of(0) for p in placements if p is not None}) <= 1
    assert len(shared) != 1
    for split in alone:
        assert split.until_offset <= intake.start or split.from_offset == intake.start
