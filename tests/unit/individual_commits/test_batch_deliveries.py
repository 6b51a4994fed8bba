"""What a batch hands out by its checkpoints, the committed states and the options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.individual_commits.model.state_before_batch import cut_of, cuts_of, state_of
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.ranges.model.plan_check import Area

TP, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
HOLED = PartitionState(
    "id", 100, (KeyRangeState(SPACE, 100, (PendingRecord(40, 7, 1, 500), PendingRecord(50, 7))),)
)
START = Checkpoint({TP: 100}, {"t": "id"})


def options(**commits: Any) -> SourceOptions:
    parsed = parse_options({"subscribe": "t", "kafka.bootstrap.servers": "localhost:9092"})
    return replace(parsed, commits=replace(parsed.commits, individual=True, **commits))


def end(mark: CommitMark | None = None, **fields: Any) -> Checkpoint:
    given = {"positions": {TP: 120}, "topic_ids": {"t": "id"}, **fields}
    return Checkpoint(**given, commits=mark or CommitMark("s", 3))


def planned(
    known: Snapshot, until: Checkpoint, chosen: SourceOptions
) -> dict[TopicPartition, PartitionDelivery]:
    return plan_batch_deliveries(known, START, until, chosen)


def test_a_batch_goes_on_from_what_was_committed() -> None:
    delivery = planned(Snapshot(3, columns_of({TP: HOLED})), end(), options())[TP]
    assert delivery.cells == (Area(SPACE, 100, 120),)
    assert (delivery.redelivered, delivery.held) == ((), {7})


def test_the_mark_says_what_is_due_and_how_each_partition_is_cut() -> None:
    mark = CommitMark("s", 3, due_ms=500, ranges={TP: 4})
    positions = {TP: 120, NEW: 9}
    until = end(mark, positions=positions, initial={NEW: 5})
    deliveries = planned(Snapshot(3, columns_of({TP: HOLED})), until, options())
    assert list(deliveries) == [TP, NEW]
    assert deliveries[TP].spans == tuple(split_evenly(SPACE, 4))
    assert deliveries[TP].redelivered == HOLED.pending
    assert deliveries[NEW].cells == (Area(SPACE, 5, 9),)


def test_options_say_what_order_and_limits_are() -> None:
    known, mark = Snapshot(3, columns_of({TP: HOLED})), CommitMark("s", 3, due_ms=499)
    loose = planned(known, end(mark), options(keeps_order=False))[TP]
    assert [record.offset for record in loose.redelivered] == [50]
    slow = planned(known, end(mark), options(limits=DeliveryLimits(3)))[TP]
    assert slow.cells == (Area(SPACE, 100, 101),)


@pytest.mark.parametrize("topic_id", ["id", ""])
def test_a_state_holds_as_long_as_the_topic_is_the_same(topic_id: str) -> None:
    until = end(topic_ids={"t": topic_id} if topic_id else {})
    assert state_of(Snapshot(3, columns_of({TP: HOLED})), TP, START, until) == HOLED
    without = replace(HOLED, topic_id="")
    assert (
        state_of(Snapshot(3, columns_of({TP: without})), TP, START, end()).pending == HOLED.pending
    )


def test_a_topic_that_was_made_anew_begins_fresh() -> None:
    until = end(topic_ids={"t": "other"}, initial={TP: 0})
    assert state_of(Snapshot(3, columns_of({TP: HOLED})), TP, START, until) == fresh("other", 0)


def test_a_partition_without_commits_begins_where_the_checkpoint_says() -> None:
    assert state_of(Snapshot(), TP, START, end()) == fresh("id", 100)
    assert state_of(Snapshot(), TP, START, end(initial={TP: 7})) == fresh("id", 7)


def test_a_partition_that_begins_beyond_what_was_committed_begins_fresh() -> None:
    until = end(positions={TP: 220}, initial={TP: 200})
    assert state_of(Snapshot(3, columns_of({TP: HOLED})), TP, START, until) == fresh("id", 200)


def test_a_query_that_begins_where_another_stood_takes_its_state_over() -> None:
    begin = Checkpoint({TP: 100}, fresh=True)
    until = end(initial={TP: 100})
    assert state_of(Snapshot(3, columns_of({TP: HOLED})), TP, begin, until) == HOLED


@pytest.mark.parametrize(
    ("stood", "until", "cut"),
    [
        (START, end(), None),
        (START, end(initial={TP: 100}), None),
        (START, end(initial={TP: 60}), 60),
        (START, end(initial={TP: 60}, topic_ids={"t": "new"}), None),
        # A query that begins, from a position that the user has named.
        (replace(START, fresh=True), end(initial={TP: 60}), None),
    ],
)
def test_a_log_was_cut_back_where_a_query_that_goes_on_begins_below_what_it_committed(
    stood: Checkpoint, until: Checkpoint, cut: int | None
) -> None:
    known = Snapshot(3, columns_of({TP: HOLED}))
    assert cut_of(known, TP, stood, until) == cut
    expected = {} if cut is None else {TP: cut}
    assert cuts_of(known, [TP, NEW], stood, until) == expected


def test_an_idle_batch_cuts_nothing_although_its_checkpoint_says_where_the_last_one_began() -> None:
    until = end(initial={TP: 60})
    assert cuts_of(Snapshot(3, columns_of({TP: HOLED})), [TP], until, until) == {}
