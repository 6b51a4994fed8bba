"""Plans by slot against plans for anywhere: the same records, each read by the slot that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import cut_span, fresh
from keyrange.members.model.assignment import Owned
from keyrange.members.model.pinned_plan import (
    Shape,
    WorkUnit,
    plan_pinned,
    plan_pinned_deliveries,
    portion_cuts,
)
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.key_ranges import SPACE, KeyRange, cover_once
from keyrange.model.offsets import OffsetRange, TopicPartition
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.commit_model import plan_delivery
from tables.delivered import Log, cuts, delivered, handed_out, partitions

SLOTS = ("a", "b", "c")


@st.composite
def owned(draw: st.DrawFn) -> tuple[Owned, ...]:
    """The owners of one partition: neighbours of one slot are one range."""
    spans = draw(cuts())
    slots: list[str] = []
    for _ in spans:
        others = [slot for slot in SLOTS if slot not in slots[-1:]]
        slots.append(draw(st.sampled_from(others)))
    return tuple(Owned(*pair) for pair in zip(spans, slots, strict=True))


def namings() -> Callable[[], Callable[[TopicPartition], str]]:
    numbers = count()

    def naming() -> Callable[[TopicPartition], str]:
        number = next(numbers)
        return lambda partition: f"{number}-{partition}"

    return naming


def slot_of(owners: tuple[Owned, ...], place: int) -> str:
    [slot] = [each.slot for each in owners if each.span.contains(place)]
    return slot


@given(
    owners=st.lists(owned(), min_size=1, max_size=3),
    per_slot=st.dictionaries(st.sampled_from(SLOTS), st.integers(1, 6)),
    size=st.sampled_from([1.0, 1e6]),
)
def test_the_portions_of_a_slot_are_its_ranges(
    owners: list[tuple[Owned, ...]], per_slot: dict[str, int], size: float
) -> None:
    named = {TopicPartition("t", number): each for number, each in enumerate(owners)}
    ranges = dict.fromkeys(named, OffsetRange(3, 10))
    shape = Shape(per_slot)

    portions = plan_pinned(
        ranges, named, dict.fromkeys(named, size), lambda _: [], shape, namings()
    )

    for partition, each in named.items():
        read: list[KeyRange] = []
        for slot in SLOTS:
            own = [s for p in portions if p.slot == slot for s in p.splits]
            spans = [
                span
                for split in own
                if split.topic_partition == partition
                for span in (split.placement.ranges() if split.placement else [SPACE])
            ]
            assert all(slot_of(each, span.from_hash) == slot for span in spans)
            assert all(slot_of(each, span.until_hash - 1) == slot for span in spans)
            read += spans
        assert cover_once(read)
    for slot in SLOTS:
        assert sum(p.slot == slot for p in portions) <= per_slot.get(slot, 1)
    names = [(s.shared, p.slot) for p in portions for s in p.splits if s.shared]
    assert len({shared for shared, _ in names}) == len(set(names))


@given(
    given_partitions=st.lists(partitions(), min_size=1, max_size=3),
    data=st.data(),
    per_slot=st.dictionaries(st.sampled_from(SLOTS), st.integers(1, 6)),
    size=st.sampled_from([0.01, 1e6]),
)
def test_what_is_handed_out_is_read_once_in_order_by_its_slot(
    given_partitions: list[tuple[Log, PartitionDelivery, list[KeyRange]]],
    data: st.DataObject,
    per_slot: dict[str, int],
    size: float,
) -> None:
    names = [TopicPartition("t", number) for number in range(len(given_partitions))]
    logs = {name: log for name, (log, _, _) in zip(names, given_partitions, strict=True)}
    deliveries = {
        name: delivery for name, (_, delivery, _) in zip(names, given_partitions, strict=True)
    }
    owners = {name: data.draw(owned()) for name in names}

    at = portion_cuts(owners, Shape(per_slot))
    spans = {
        name: [part for span in each for part in cut_span(span, at.get(name, ()))]
        for name, (_, _, each) in zip(names, given_partitions, strict=True)
    }
    deliveries = {name: recut(deliveries[name], at.get(name, ())) for name in names}

    portions = plan_pinned_deliveries(
        deliveries,
        spans,
        owners,
        dict.fromkeys(names, size),
        lambda _: [],
        Shape(per_slot),
        namings(),
    )

    assert portions is not None
    for portion in portions:
        for split in portion.splits:
            read = split.placement.ranges() if split.placement else [SPACE]
            begins = {span.from_hash for span in spans[split.topic_partition]}
            assert {span.from_hash for span in read} <= begins
    for name in names:
        read = [each for portion in portions for each in records_of(portion, name, logs[name])]
        assert sorted(read) == handed_out(deliveries[name], logs[name])
        for portion in portions:
            own = list(records_of(portion, name, logs[name]))
            assert all(a < b for a, b in pairwise(own))
            assert {slot_of(owners[name], logs[name][at]) for at in own} <= {portion.slot}


def test_key_ranges_that_belong_to_two_slots_are_not_planned_by_slots() -> None:
    partition = TopicPartition("t", 0)
    low, high = KeyRange(0, 5), KeyRange(5, SPACE.until_hash)
    owners = {partition: (Owned(low, "a"), Owned(high, "b"))}

    def planned(spans: list[KeyRange]) -> list[WorkUnit] | None:
        delivery = plan_delivery(fresh("", 0), spans, 10, -1, DeliveryLimits())
        return plan_pinned_deliveries(
            {partition: delivery},
            {partition: spans},
            owners,
            {partition: 1.0},
            lambda _: [],
            Shape({}),
            namings(),
        )

    assert planned([SPACE]) is None
    assert planned([KeyRange(0, 7), KeyRange(7, SPACE.until_hash)]) is None
    found = planned([low, high])
    assert found is not None
    assert [portion.slot for portion in found] == ["a", "b"]


def recut(delivery: PartitionDelivery, at: Sequence[int]) -> PartitionDelivery:
    cells = [replace(c, span=span) for c in delivery.cells for span in cut_span(c.span, at)]
    return replace(delivery, cells=tuple(cells))


def records_of(portion: WorkUnit, partition: TopicPartition, log: Log) -> Iterator[int]:
    for split in portion.splits:
        if split.topic_partition == partition:
            yield from delivered(split, log)
