"""What a consumer keeps of records that it was handed."""

from __future__ import annotations

import numpy as np

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.individual_commits.model.partition_progress import KeyRangeState
from keyrange.model.key_ranges import SPACE


def handed_out(work: PartitionWork, begin: int, end: int) -> None:
    """Take note of the records from `begin` up to `end`, each with a key of its own."""
    offsets = np.arange(begin, end)
    assert work.hand_out(offsets, offsets * 7, {}, 0, 1_000) is None
    work.advance(SPACE, begin, end)


def test_of_a_batch_that_is_committed_only_what_waits_is_kept() -> None:
    work = PartitionWork([KeyRangeState(SPACE, 0)], 300_000)
    for begin in range(0, 10_000, 1_000):
        offsets = np.arange(begin, begin + 1_000)
        work.hand_out(offsets, offsets * 7, {}, 1_000, 1_000)
        work.advance(SPACE, begin, begin + 1_000)
        work.acknowledge(offsets[1:])
        work.committed(work.pieces())

    assert work.waiting == 10
    assert sum(len(each.offsets) for each in work._stretches) == 10
    # The rest is done all the same.
    [piece] = work.pieces()
    assert piece.scanned == 10_000
    assert [record.offset for record in piece.pending] == list(range(0, 10_000, 1_000))
    assert work.acknowledge(np.arange(10_000)) == 10
    assert work.pieces() == [KeyRangeState(SPACE, 10_000)]


def test_a_log_that_is_cut_back_ends_what_was_passed_over() -> None:
    work = PartitionWork([KeyRangeState(SPACE, 0)], 300_000)
    work.seek(10)
    work.cut_back(4)
    assert work.pieces() == [KeyRangeState(SPACE, 4)]
    # What comes there is new to whoever goes on.
    handed_out(work, 4, 6)
    assert work.pieces() == [KeyRangeState(SPACE, 4)]


def test_what_was_worked_on_before_keeps_its_deliveries() -> None:
    """Also behind the last record that is done: to whoever goes on it would be new, for ever."""
    work = PartitionWork([KeyRangeState(SPACE, 0)], 10)
    handed_out(work, 0, 2)
    late = work.due(10)
    again = {record.offset: record for record in late}
    work.hand_out(np.arange(2), np.arange(2) * 7, again, 10, 1_000)
    [piece] = work.pieces()
    assert [(record.offset, record.deliveries) for record in piece.pending] == [(0, 1), (1, 1)]


def test_a_record_that_is_gone_is_done_behind_a_seek_too() -> None:
    work = PartitionWork([KeyRangeState(SPACE, 0)], 300_000)
    handed_out(work, 0, 10)
    work.seek(0)
    gone = next(record for record in work.due(0) if record.offset == 6)
    assert work.forget(gone)
    [piece] = work.pieces()
    assert (piece.scanned, [record.offset for record in piece.pending]) == (7, [*range(6)])


def test_what_was_passed_over_is_done_of_ranges_that_are_kept() -> None:
    before = PartitionWork([KeyRangeState(SPACE, 0)], 300_000)
    before.hand_out(np.array([2]), np.array([14]), {}, 1_000, 1_000)
    before.advance(SPACE, 0, 3)
    before.seek(10)
    after = PartitionWork([KeyRangeState(SPACE, 0)], 300_000)
    after.go_on(before)
    [piece] = after.pieces()
    assert (piece.scanned, [record.offset for record in piece.pending]) == (10, [2])
