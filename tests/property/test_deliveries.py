"""What tasks read of a batch against what it hands out: every record once, and in order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model import delivery_splits
from keyrange.individual_commits.model.delivery_splits import (
    PartitionDelivery,
    plan_cells,
    plan_deliveries,
)
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.ranges.model.plan_check import HandedOut, check_plan
from keyrange.ranges.model.range_plan import cut_line
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.commit_model import is_empty
from tables.delivered import Log, delivered, handed_out, partitions


@given(
    given_partitions=st.lists(partitions(), min_size=1, max_size=3),
    tasks=st.integers(1, 6),
    size=st.sampled_from([0.01, 100.0, 1e6]),
)
def test_every_record_that_is_handed_out_is_read_once_and_in_order(
    given_partitions: list[tuple[Log, PartitionDelivery, list[KeyRange]]], tasks: int, size: float
) -> None:
    names = [TopicPartition("t", number) for number in range(len(given_partitions))]
    logs = {name: log for name, (log, _, _) in zip(names, given_partitions, strict=True)}
    deliveries = {
        name: delivery for name, (_, delivery, _) in zip(names, given_partitions, strict=True)
    }
    spans = {name: cut for name, (_, _, cut) in zip(names, given_partitions, strict=True)}
    sizes = dict.fromkeys(names, size)

    cells = plan_cells(deliveries, spans, sizes, lambda _: [])
    stretches = cut_line(cells, lambda cell: cell.bytes, tasks) if cells else []
    planned = plan_deliveries(stretches, deliveries, sizes, str)

    check_plan(chain.from_iterable(planned), _wanted(deliveries, spans))
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
        assert sorted(read[name]) == handed_out(deliveries[name], logs[name])
        if not is_empty(deliveries[name]):
            span = deliveries[name].reach
            assert all(span.from_offset <= offset < span.until_offset for offset in read[name])
    assert all(len(readers) == 1 for readers in tasks_of.values())
    assert len(planned) <= tasks


@given(given_partition=partitions(), tasks=st.integers(1, 6), data=st.data())
def test_a_plan_that_reads_a_record_twice_or_not_at_all_is_refused(
    given_partition: tuple[Log, PartitionDelivery, list[KeyRange]],
    tasks: int,
    data: st.DataObject,
) -> None:
    name = TopicPartition("t", 0)
    log, delivery, spans = given_partition
    cells = plan_cells({name: delivery}, {name: spans}, {name: 100.0}, lambda _: [])
    assume(cells)
    if data.draw(st.booleans(), label="a cell is left out"):
        cells.pop(data.draw(st.integers(0, len(cells) - 1)))
    stretches = cut_line(cells, lambda cell: cell.bytes, tasks) if cells else []
    planned = plan_deliveries(stretches, {name: delivery}, {name: 100.0}, str)
    splits = list(chain.from_iterable(planned))
    if splits and data.draw(st.booleans(), label="a split is read twice"):
        splits.append(data.draw(st.sampled_from(splits)))

    wanted = _wanted({name: delivery}, {name: spans})
    read = sorted(offset for split in splits for offset in delivered(split, log))
    if read != handed_out(delivery, log):
        with pytest.raises(KeyrangeError, match="INCONSISTENT_PLAN") as failure:
            check_plan(splits, wanted)
        assert "partition=t-0" in str(failure.value)


def _wanted(
    deliveries: Mapping[TopicPartition, PartitionDelivery],
    spans: Mapping[TopicPartition, list[KeyRange]],
) -> dict[TopicPartition, HandedOut]:
    return {
        name: delivery_splits.handed_out(delivery, spans[name])
        for name, delivery in deliveries.items()
    }


@given(given_partition=partitions(), tasks=st.integers(1, 6))
def test_who_shares_a_split_means_the_same_and_reads_from_the_position_on(
    given_partition: tuple[Log, PartitionDelivery, list[KeyRange]], tasks: int
) -> None:
    name = TopicPartition("t", 0)
    _, delivery, spans = given_partition
    cells = plan_cells({name: delivery}, {name: spans}, {name: 100.0}, lambda _: [])
    stretches = cut_line(cells, lambda cell: cell.bytes, tasks) if cells else []
    planned = plan_deliveries(stretches, {name: delivery}, {name: 100.0}, str)

    shared = [split for splits in planned for split in splits if split.shared]
    alone = [split for splits in planned for split in splits if not split.shared]
    assert len({(s.from_offset, s.until_offset, s.delivery) for s in shared}) <= 1
    assert {s.from_offset for s in shared} <= {delivery.start}
    placements = [split.placement for split in shared]
    assert [p.reader for p in placements if p is not None] == list(range(len(shared)))
    assert len({p.of(0) for p in placements if p is not None}) <= 1
    assert len(shared) != 1
    for split in alone:
        assert split.until_offset <= delivery.start or split.from_offset == delivery.start
