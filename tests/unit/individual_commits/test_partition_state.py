"""What a state of a partition says of itself, and what it refuses to be."""

from __future__ import annotations

import pytest

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    by_offset,
    cut_at,
    cut_span,
    fresh,
)
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import OffsetRange

END = SPACE.until_hash
LOWER, UPPER = split_evenly(SPACE, 2)
BORDER = UPPER.from_hash


def pending(*offsets: int, key_hash: int = 0) -> tuple[PendingRecord, ...]:
    return tuple(PendingRecord(offset, key_hash) for offset in offsets)


def state(*pieces: KeyRangeState, position: int = 100) -> PartitionState:
    return PartitionState("id", position, pieces)


def test_a_piece_without_pending_records_is_done_up_to_where_it_was_scanned() -> None:
    piece = KeyRangeState(SPACE, 50)
    assert (piece.committed, piece.done()) == (50, ())


def test_a_piece_is_done_up_to_its_first_hole_and_in_between() -> None:
    piece = KeyRangeState(SPACE, 50, pending(40, 41, 45))
    assert piece.committed == 40
    assert piece.done() == (OffsetRange(42, 45), OffsetRange(46, 50))
    assert KeyRangeState(SPACE, 50, pending(48, 49)).done() == ()


def test_a_cut_hands_each_hole_to_the_side_of_its_key() -> None:
    own = by_offset(
        (
            PendingRecord(5, BORDER - 1),
            PendingRecord(3, BORDER),
            PendingRecord(9, 0),
            PendingRecord(7, END - 1),
        )
    )
    lower, upper = KeyRangeState(SPACE, 10, own).cut([BORDER])
    assert (lower.span, upper.span) == (LOWER, UPPER)
    assert [record.offset for record in lower.pending] == [5, 9]
    assert [record.offset for record in upper.pending] == [3, 7]
    assert lower.scanned == upper.scanned == 10


def test_a_piece_is_cut_only_inside() -> None:
    piece = KeyRangeState(UPPER, 10, pending(3, key_hash=END - 1))
    assert piece.cut([0, 1, BORDER, END]) == [piece]
    assert cut_at([piece], []) == [piece]


def test_a_span_is_cut_at_the_hashes_inside() -> None:
    assert cut_span(KeyRange(10, 20), [0, 10, 12, 15, 20, 30]) == [
        KeyRange(10, 12),
        KeyRange(12, 15),
        KeyRange(15, 20),
    ]


def test_a_partition_stands_where_its_last_range_stands() -> None:
    found = state(
        KeyRangeState(LOWER, 70, pending(30)),
        KeyRangeState(UPPER, 60, pending(40, key_hash=BORDER)),
    )
    assert (found.committed, found.scanned) == (30, 60)
    assert [record.offset for record in found.pending] == [30, 40]
    assert state(KeyRangeState(LOWER, 70), KeyRangeState(UPPER, 60)).committed == 60


def test_all_pending_records_stand_by_offset() -> None:
    found = state(
        KeyRangeState(LOWER, 70, pending(30, 50)),
        KeyRangeState(UPPER, 60, pending(40, key_hash=BORDER)),
    )
    assert [record.offset for record in found.pending] == [30, 40, 50]


@pytest.mark.parametrize(
    ("key_hash", "span"), [(0, LOWER), (BORDER - 1, LOWER), (BORDER, UPPER), (END - 1, UPPER)]
)
def test_a_hash_lies_in_one_piece(key_hash: int, span: KeyRange) -> None:
    assert state(KeyRangeState(LOWER, 1), KeyRangeState(UPPER, 1)).piece_of(key_hash).span == span


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (KeyRangeState(LOWER, 1),),
        (KeyRangeState(UPPER, 1),),
        (KeyRangeState(UPPER, 1), KeyRangeState(LOWER, 1)),
        (KeyRangeState(LOWER, 1), KeyRangeState(LOWER, 1), KeyRangeState(UPPER, 1)),
        (KeyRangeState(SPACE, 1), KeyRangeState(UPPER, 1)),
        (KeyRangeState(LOWER, 1), KeyRangeState(KeyRange(BORDER + 1, END), 1)),
    ],
)
def test_pieces_that_do_not_cover_the_space_once_in_order_are_refused(
    pieces: tuple[KeyRangeState, ...],
) -> None:
    with pytest.raises(ValueError, match="cover the hash space once"):
        state(*pieces)


@pytest.mark.parametrize("scanned", [-1, 101])
def test_a_piece_is_scanned_within_the_position(scanned: int) -> None:
    with pytest.raises(ValueError, match=f"was scanned to {scanned} of 100"):
        state(KeyRangeState(SPACE, scanned))


@pytest.mark.parametrize("offsets", [(50,), (51,), (-1,), (7, 7), (8, 7)])
def test_holes_lie_in_order_below_what_was_scanned(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="was scanned to 50, and has a pending record at"):
        state(KeyRangeState(SPACE, 50, pending(*offsets)))


def test_a_hole_lies_where_its_key_does() -> None:
    with pytest.raises(ValueError, match=f"has a pending record of a key at {BORDER}"):
        state(KeyRangeState(LOWER, 50, pending(3, key_hash=BORDER)), KeyRangeState(UPPER, 50))


def test_an_offset_is_one_record() -> None:
    with pytest.raises(ValueError, match="two ranges have a pending record at one offset"):
        state(
            KeyRangeState(LOWER, 50, pending(3)),
            KeyRangeState(UPPER, 50, pending(3, key_hash=BORDER)),
        )


def test_refining_cuts_at_both_ends_of_a_span() -> None:
    found = fresh("id", 100).refined([KeyRange(10, 20)])
    spans = [piece.span for piece in found.pieces]
    assert spans == [KeyRange(0, 10), KeyRange(10, 20), KeyRange(20, END)]
    assert found.merged() == fresh("id", 100)


def test_neighbours_that_differ_stay_apart() -> None:
    for found in (
        state(KeyRangeState(LOWER, 70), KeyRangeState(UPPER, 60)),
        state(KeyRangeState(LOWER, 60, pending(1)), KeyRangeState(UPPER, 60)),
        state(KeyRangeState(LOWER, 60), KeyRangeState(UPPER, 60, pending(1, key_hash=BORDER))),
    ):
        assert found.merged() == found


def test_a_log_that_was_cut_back_keeps_what_is_below() -> None:
    found = state(
        KeyRangeState(LOWER, 40, pending(10, 35)),
        KeyRangeState(UPPER, 90, pending(60, key_hash=BORDER)),
    )
    assert found.cut_back(50) == state(
        KeyRangeState(LOWER, 40, pending(10, 35)), KeyRangeState(UPPER, 50), position=50
    )
    assert found.cut_back(35).pieces[0] == KeyRangeState(LOWER, 35, pending(10))
    assert found.cut_back(5) == fresh("id", 5)


def test_nothing_of_a_fresh_partition_is_done() -> None:
    found = fresh("id", 7)
    assert (found.committed, found.scanned, found.position, found.pending) == (7, 7, 7, ())
    assert [piece.span for piece in found.pieces] == [SPACE]
