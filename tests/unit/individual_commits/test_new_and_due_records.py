"""What a batch hands out of a partition: what is new to each range, and which pending records come
again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from keyrange.individual_commits.model.delivery_columns import due_until_ms
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.checkpoint import NEVER_DUE
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.plan_check import Area
from tables.commit_model import due_records, is_empty, plan_delivery

LOWER, UPPER = split_evenly(SPACE, 2)
BORDER = UPPER.from_hash
HALVES = (LOWER, UPPER)
NO_LIMITS = DeliveryLimits()


def state(*pending: PendingRecord, position: int = 100) -> PartitionState:
    return PartitionState("id", position, (KeyRangeState(SPACE, position, pending),))


def plan(
    of: PartitionState, end: int = 120, due_ms: int = NEVER_DUE, keeps_order: bool = True
) -> PartitionDelivery:
    return plan_delivery(of, HALVES, end, due_ms, NO_LIMITS, keeps_order)


def test_all_ranges_take_what_is_new() -> None:
    delivery = plan(fresh("id", 100))
    assert delivery.cells == (Area(LOWER, 100, 120), Area(UPPER, 100, 120))
    assert (delivery.start, delivery.end, delivery.spans) == (100, 120, HALVES)
    assert (delivery.redelivered, delivery.held) == ((), frozenset())
    assert not is_empty(delivery)


def test_a_batch_is_empty_that_hands_out_nothing() -> None:
    assert is_empty(plan(fresh("id", 100), end=100))
    assert is_empty(plan(state(PendingRecord(5, 0, due_ms=10)), end=100, due_ms=9))
    assert not is_empty(plan(state(PendingRecord(5, 0, due_ms=10)), end=100, due_ms=10))
    assert not is_empty(plan(PartitionState("id", 100, (KeyRangeState(SPACE, 99),)), end=100))


def test_a_batch_reaches_from_the_first_to_the_last_that_it_hands_out() -> None:
    behind = PartitionState("id", 100, (KeyRangeState(LOWER, 60), KeyRangeState(UPPER, 100)))
    assert plan(behind).reach == OffsetRange(60, 120)
    assert plan(state(PendingRecord(5, 0)), due_ms=0).reach == OffsetRange(5, 120)
    assert plan(fresh("id", 100), end=100).reach == OffsetRange(100, 100)


def test_a_batch_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="up to 99 goes back behind 100"):
        plan(fresh("id", 100), end=99)


def test_a_range_that_is_behind_keeps_its_bounds_and_catches_up() -> None:
    behind = PartitionState(
        "id", 100, (KeyRangeState(KeyRange(0, 10), 80), KeyRangeState(KeyRange(10, 2**63), 100))
    )
    assert plan(behind).cells == (
        Area(KeyRange(0, 10), 80, 120),
        Area(KeyRange(10, BORDER), 100, 120),
        Area(UPPER, 100, 120),
    )


def test_cuts_of_the_state_are_none_of_the_batch_where_the_offsets_are_the_same() -> None:
    cut = state(PendingRecord(5, 0, due_ms=99)).refined(split_evenly(SPACE, 8))
    assert plan(cut).cells == plan(fresh("id", 100)).cells


def test_what_is_handed_out_does_not_depend_on_the_spans() -> None:
    many = tuple(PendingRecord(at, at, due_ms=at) for at in range(8))
    pieces = (KeyRangeState(LOWER, 50, many), KeyRangeState(UPPER, 100))
    found = PartitionState("id", 100, pieces)
    limits = DeliveryLimits(10)
    one, other = (
        plan_delivery(found, s, 120, 3, limits) for s in ([SPACE], split_evenly(SPACE, 5))
    )
    assert (one.redelivered, one.held) == (other.redelivered, other.held)
    for key_hash in (0, 7, BORDER - 1, BORDER, 2**63 - 1):
        taken = {
            (cell.from_offset, cell.until_offset)
            for delivery in (one, other)
            for cell in delivery.cells
            if cell.span.contains(key_hash)
        }
        assert taken == {(50, 52) if key_hash < BORDER else (100, 120)}


@pytest.mark.parametrize(
    ("pending", "pending_max", "until"),
    [
        (0, 1, 120),
        (1, 1, 100),
        (0, 10, 120),
        (4, 10, 120),
        (5, 10, 105),
        (9, 10, 101),
        (10, 10, 100),
        (12, 10, 100),
        (5, 11, 120),
        (6, 11, 105),
        (50, 100, 120),
    ],
)
def test_a_range_slows_from_half_of_its_pending_records_and_stops_at_all(
    pending: int, pending_max: int, until: int
) -> None:
    lower = KeyRangeState(LOWER, 100, tuple(PendingRecord(at, at) for at in range(pending)))
    found = PartitionState("id", 100, (lower, KeyRangeState(UPPER, 100)))
    delivery = plan_delivery(found, HALVES, 120, NEVER_DUE, DeliveryLimits(pending_max))
    assert delivery.cells == (Area(LOWER, 100, until), Area(UPPER, 100, 120))


def test_with_order_the_pending_records_of_a_key_go_together_when_the_first_is_due() -> None:
    found = state(
        PendingRecord(1, 7, due_ms=20),
        PendingRecord(2, 8, due_ms=10),
        PendingRecord(3, 7),
        PendingRecord(4, 8, due_ms=99),
    )
    assert [h.offset for h in due_records(found, 10)] == [2, 4]
    assert [h.offset for h in due_records(found, 20)] == [1, 2, 3, 4]
    delivery = plan(found, due_ms=10)
    assert [h.offset for h in delivery.redelivered] == [2, 4]
    assert delivery.held == {7}


def test_without_order_each_hole_goes_when_it_is_due_and_no_key_waits() -> None:
    found = state(
        PendingRecord(1, 7, due_ms=20), PendingRecord(2, 8, due_ms=10), PendingRecord(3, 7)
    )
    delivery = plan(found, due_ms=10, keeps_order=False)
    assert [h.offset for h in delivery.redelivered] == [2, 3]
    assert delivery.held == frozenset()


def test_no_hole_is_due_where_none_is_to_be() -> None:
    for keeps_order in (True, False):
        assert due_records(state(PendingRecord(1, 7, due_ms=0)), NEVER_DUE, keeps_order) == ()


def test_null_keys_in_one_place_wait_for_the_first_of_them() -> None:
    """The empty key lies in place 0 too, and keeps its order."""
    found = state(PendingRecord(1, 0, due_ms=20), PendingRecord(2, 0, due_ms=10))
    assert due_records(found, 10) == ()
    assert [h.offset for h in due_records(found, 20)] == [1, 2]


def due(states: dict[TopicPartition, PartitionState], keeps_order: bool = True) -> list[int]:
    return list(columns_of(states).due_ms(keeps_order).tolist())


def until(each_ms: list[int], timers_ms: Sequence[int] = ()) -> int:
    return due_until_ms(np.array(each_ms, np.int64), 1_000, 500, timers_ms)


def test_the_next_hole_that_is_due_says_when() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    states = {
        one: state(PendingRecord(1, 7, due_ms=30), PendingRecord(2, 7, due_ms=5)),
        other: state(PendingRecord(4, 1, due_ms=20)),
    }
    assert due(states) == [30, 30, 20]
    assert due(states, keeps_order=False) == [30, 5, 20]
    assert due({one: fresh("id", 3)}) == due({}) == []


@pytest.mark.parametrize(
    ("due_ms", "until_ms"),
    [(0, 1_000), (1_000, 1_000), (1_500, 1_000), (61_500, 1_000), (61_501, 61_501)],
)
def test_a_time_that_no_clock_like_this_one_gave_is_due(due_ms: int, until_ms: int) -> None:
    waiting = state(PendingRecord(1, 7, due_ms=due_ms), PendingRecord(2, 8, due_ms=1_400))
    one = TopicPartition("t", 0)
    assert until(due({one: waiting})) == until_ms
    behind = state(PendingRecord(1, 7, due_ms=900), PendingRecord(2, 7, due_ms=due_ms))
    assert until(due({one: behind})) == 1_000
    assert until(due({one: behind}, keeps_order=False)) == until_ms
    assert until([]) == 1_000
    assert until([], [due_ms, 1_400]) == until_ms
