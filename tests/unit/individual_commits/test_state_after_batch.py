"""What becomes of a state by a verdict, and which verdicts are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
    fresh,
)
from keyrange.individual_commits.model.verdict_columns import MERGED_PENDING_MAX, PartitionVerdict
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import OffsetRange
from keyrange.work.model.outcome import Cause, RecordOutcome
from tables.commit_model import Outcome, apply_verdict, plan_delivery

LOWER, UPPER = split_evenly(SPACE, 2)
BORDER = UPPER.from_hash
POLICY = RedeliveryPolicy(deliveries_max=3, backoff_ms=10, backoff_max_ms=35)
NOW_MS = 1_000


def delivery_of(
    state: PartitionState, due_ms: int = -1, spans: Sequence[KeyRange] = (SPACE,)
) -> PartitionDelivery:
    return plan_delivery(state, spans, 120, due_ms, DeliveryLimits())


def judged(
    state: PartitionState,
    *not_done: RecordOutcome,
    back: Sequence[tuple[KeyRange, int]] = (),
    due_ms: int = -1,
    policy: RedeliveryPolicy = POLICY,
    spans: Sequence[KeyRange] = (SPACE,),
) -> Outcome:
    verdict = PartitionVerdict(not_done, tuple(back))
    return apply_verdict(state, delivery_of(state, due_ms, spans), verdict, policy, NOW_MS)


def failed(offset: int, key_hash: int = 7, cause: Cause = Cause.REJECTED) -> RecordOutcome:
    return RecordOutcome(offset, key_hash, cause)


def with_pending(*pending: PendingRecord) -> PartitionState:
    return PartitionState("id", 100, (KeyRangeState(SPACE, 100, pending),))


def test_what_is_not_mentioned_is_done() -> None:
    assert judged(fresh("id", 100)) == Outcome(fresh("id", 120), ())
    assert judged(with_pending(PendingRecord(5, 7)), due_ms=0) == Outcome(fresh("id", 120), ())


def test_holes_that_were_not_handed_out_stay_as_they_are() -> None:
    record = PendingRecord(5, 7, 2, 500, 400, Cause.TIMED_OUT)
    assert judged(with_pending(record), due_ms=499).state.pending == (record,)


@pytest.mark.parametrize("cause", [Cause.REJECTED, Cause.TIMED_OUT, Cause.UNMENTIONED])
def test_a_record_that_failed_is_a_hole_and_waits(cause: Cause) -> None:
    (record,) = judged(fresh("id", 100), failed(110, cause=cause)).state.pending
    assert record == PendingRecord(110, 7, 1, NOW_MS + 10, NOW_MS, cause)


def test_what_was_held_back_counts_no_delivery_and_waits_for_nothing() -> None:
    (record,) = judged(fresh("id", 100), failed(110, cause=Cause.HELD_BACK)).state.pending
    assert record == PendingRecord(110, 7, 0, 0, NOW_MS, Cause.HELD_BACK)


def test_a_hole_that_failed_again_waits_longer_and_keeps_its_age() -> None:
    state = with_pending(PendingRecord(5, 7, 1, 500, 400))
    (record,) = judged(state, failed(5, cause=Cause.TIMED_OUT), due_ms=500).state.pending
    assert record == PendingRecord(5, 7, 2, NOW_MS + 20, 400, Cause.TIMED_OUT)


def test_a_hole_that_is_held_back_on_its_way_keeps_its_deliveries() -> None:
    state = with_pending(PendingRecord(5, 7, 2, 500, 400))
    (record,) = judged(state, failed(5, cause=Cause.HELD_BACK), due_ms=500).state.pending
    assert record == PendingRecord(5, 7, 2, 500, 400, Cause.HELD_BACK)


def test_a_record_that_failed_too_often_is_given_up() -> None:
    state = with_pending(PendingRecord(5, 7, 2), PendingRecord(6, 7, 1))
    result = judged(state, failed(5), failed(6), due_ms=0)
    assert [(record.offset, record.deliveries) for record in result.dead] == [(5, 3)]
    assert [(record.offset, record.deliveries) for record in result.state.pending] == [(6, 2)]
    once = RedeliveryPolicy(deliveries_max=1)
    result = judged(fresh("id", 100), failed(110), policy=once)
    assert ([record.offset for record in result.dead], result.state) == ([110], fresh("id", 120))


def test_a_hole_beyond_a_limit_that_was_lowered_is_not_given_up_unworked() -> None:
    state = with_pending(PendingRecord(5, 7, 4))
    held = judged(state, failed(5, cause=Cause.HELD_BACK), due_ms=0)
    assert (held.dead, len(held.state.pending)) == ((), 1)


def test_dead_letters_stand_by_offset() -> None:
    state = with_pending(PendingRecord(5, 7, 2), PendingRecord(6, 8, 2))
    result = judged(state, failed(6, 8), failed(5), due_ms=0)
    assert [record.offset for record in result.dead] == [5, 6]


def test_what_is_handed_back_was_not_scanned() -> None:
    result = judged(fresh("id", 100), failed(105), back=[(UPPER, 110)], spans=(LOWER, UPPER))
    assert [(p.span, p.scanned) for p in result.state.pieces] == [(LOWER, 120), (UPPER, 110)]
    assert (result.state.position, result.state.committed) == (120, 105)


def test_handed_back_among_what_comes_again_leaves_pending_records_as_they_are() -> None:
    first, last = (
        PendingRecord(5, 7, 1, 500, 400),
        PendingRecord(8, 7, 2, 600, 400, Cause.TIMED_OUT),
    )
    result = judged(with_pending(first, last), back=[(SPACE, 8)], due_ms=700)
    (piece,) = result.state.pieces
    assert (piece.scanned, piece.pending) == (100, (last,))


def test_the_least_that_was_handed_back_counts() -> None:
    backs = [(SPACE, 115), (LOWER, 110), (KeyRange(0, 5), 118)]
    for order in (backs, backs[::-1]):
        result = judged(fresh("id", 100), back=order)
        assert [(p.span, p.scanned) for p in result.state.pieces] == [(LOWER, 110), (UPPER, 115)]


def test_handed_back_from_beyond_what_was_taken_in_is_all_of_it() -> None:
    assert judged(fresh("id", 100), back=[(SPACE, 500)]).state == fresh("id", 120)


def test_a_range_that_was_stopped_is_not_scanned() -> None:
    pending = tuple(PendingRecord(at, at, due_ms=9) for at in range(2))
    state = PartitionState(
        "id", 100, (KeyRangeState(LOWER, 90, pending), KeyRangeState(UPPER, 100))
    )
    delivery = plan_delivery(state, (LOWER, UPPER), 120, 0, DeliveryLimits(2))
    after = apply_verdict(state, delivery, PartitionVerdict(), POLICY, NOW_MS).state
    assert after.pieces == (KeyRangeState(LOWER, 90, pending), KeyRangeState(UPPER, 120))
    with pytest.raises(ValueError, match="offset 95 was not handed out"):
        apply_verdict(state, delivery, PartitionVerdict((failed(95),)), POLICY, NOW_MS)


@pytest.mark.parametrize(
    "said",
    [
        failed(99),
        failed(120),
        failed(5, key_hash=8),
        failed(6, key_hash=9),
        failed(-1),
    ],
    ids=["before", "behind", "with another key", "not due", "no offset"],
)
def test_a_verdict_names_only_what_was_handed_out(said: RecordOutcome) -> None:
    state = with_pending(PendingRecord(5, 7), PendingRecord(6, 9, due_ms=50))
    with pytest.raises(ValueError, match=f"offset {said.offset} was not handed out"):
        judged(state, said, due_ms=0)


@pytest.mark.parametrize("offset", [5, 110, 119])
def test_what_was_handed_back_has_no_verdict(offset: int) -> None:
    with pytest.raises(ValueError, match=f"offset {offset} was not handed out"):
        judged(
            with_pending(PendingRecord(5, 7)),
            failed(offset),
            back=[(SPACE, min(offset, 110))],
            due_ms=0,
        )


@pytest.mark.parametrize("key_hash", [-1, 2**63])
def test_a_verdict_names_keys_of_the_space(key_hash: int) -> None:
    with pytest.raises(ValueError, match="no key has the place"):
        judged(fresh("id", 100), failed(110, key_hash))


def test_the_same_said_twice_counts_once_and_two_things_are_refused() -> None:
    assert len(judged(fresh("id", 100), failed(110), failed(110)).state.pending) == 1
    for other in (failed(110, 8), failed(110, cause=Cause.HELD_BACK)):
        with pytest.raises(ValueError, match="two things were said of offset 110"):
            judged(fresh("id", 100), failed(110), other)


def test_a_verdict_is_taken_into_the_state_it_was_planned_from() -> None:
    with pytest.raises(ValueError, match="begins at 100, the state is at 101"):
        apply_verdict(
            fresh("id", 101), delivery_of(fresh("id", 100)), PartitionVerdict(), POLICY, NOW_MS
        )


def test_cuts_that_no_range_has_any_more_are_joined() -> None:
    state = with_pending(PendingRecord(5, 7, due_ms=9), PendingRecord(6, BORDER, due_ms=9))
    cut = judged(state, spans=split_evenly(SPACE, 4)).state
    assert len(cut.pieces) == 4
    again = plan_delivery(cut, (SPACE,), 130, -1, DeliveryLimits())
    assert len(apply_verdict(cut, again, PartitionVerdict(), POLICY, NOW_MS).state.pieces) == 1


def test_inside_a_key_range_pending_records_do_not_keep_neighbours_apart() -> None:
    low, high = PendingRecord(5, 0), PendingRecord(3, BORDER)
    state = PartitionState(
        "id", 100, (KeyRangeState(LOWER, 100, (low,)), KeyRangeState(UPPER, 100, (high,)))
    )
    (joined,) = judged(state).state.pieces
    assert joined == KeyRangeState(SPACE, 120, (high, low))
    assert len(judged(state, spans=[LOWER, UPPER]).state.pieces) == 2


def test_many_pending_records_are_not_put_together() -> None:
    most = tuple(PendingRecord(offset, 0) for offset in range(MERGED_PENDING_MAX))
    for more, pieces in (((), 1), ((PendingRecord(2_000, BORDER),), 2)):
        state = PartitionState(
            "id", 5_000, (KeyRangeState(LOWER, 5_000, most), KeyRangeState(UPPER, 5_000, more))
        )
        delivery = plan_delivery(state, (SPACE,), 5_010, -1, DeliveryLimits())
        after = apply_verdict(state, delivery, PartitionVerdict(), POLICY, NOW_MS).state
        assert len(after.pieces) == pieces


@pytest.mark.parametrize(
    ("deliveries", "wait_ms"),
    [(0, 10), (1, 10), (2, 20), (3, 35), (4, 35), (64, 35), (10**9, 35)],
)
def test_the_wait_doubles_up_to_its_bound(deliveries: int, wait_ms: int) -> None:
    assert POLICY.due_ms(deliveries, NOW_MS) == NOW_MS + wait_ms


def test_no_time_is_beyond_what_can_be_stored() -> None:
    forever = RedeliveryPolicy(10**9, 2**62, 2**63 - 1)
    assert forever.due_ms(10**6, 2**41) == 2**63 - 1
    assert RedeliveryPolicy(5, 0, 100).due_ms(4, NOW_MS) == NOW_MS
    assert RedeliveryPolicy(5, 1, 2**62).due_ms(62, 0) == 2**61


def proposed(committed: int, *done: tuple[int, int]) -> PartitionState:
    """A partition as the proposal for cooperative processing writes it: the last offset below which
    all is done, and done ranges above it, both ends included; each record with a key of its own."""
    position = max(last for _, last in done) + 1
    inside = {offset for first, last in done for offset in range(first, last + 1)}
    open_ = [offset for offset in range(committed + 1, position) if offset not in inside]
    pending = tuple(PendingRecord(offset, offset) for offset in open_)
    return PartitionState("id", position, (KeyRangeState(SPACE, position, pending),))


def worked_on(state: PartitionState, *done: int) -> PartitionState:
    """After a batch that hands out what is not done, of which some is done then."""
    delivery = plan_delivery(state, (SPACE,), state.position, 0, DeliveryLimits())
    left = [failed(record.offset, record.key_hash) for record in delivery.redelivered]
    verdict = PartitionVerdict(tuple(each for each in left if each.offset not in done), ())
    return apply_verdict(state, delivery, verdict, POLICY, NOW_MS).state


def done_of(state: PartitionState) -> list[tuple[int, int]]:
    """The done ranges above the committed offset, both ends included."""
    return [(each.from_offset, each.until_offset - 1) for each in state.pieces[0].done()]


def test_the_proposal_coalesces() -> None:
    state = worked_on(proposed(42, (45, 47), (50, 50)), 48, 49)
    assert (state.committed, done_of(state)) == (43, [(45, 50)])


def test_the_proposal_purges() -> None:
    """Offset 42 is committed, so 43 is the next; with 43 and 44 done, so is all up to 47."""
    before = proposed(42, (45, 47), (50, 50))
    assert (before.committed, done_of(before)) == (43, [(45, 47), (50, 50)])
    state = worked_on(before, 43, 44)
    assert (state.committed, done_of(state)) == (48, [(50, 50)])
    state = worked_on(proposed(42, (45, 47)), 43, 44)
    assert (state.committed, done_of(state)) == (48, [])


def test_the_proposal_amends_gaps() -> None:
    """Offset 40 is committed; what is fetched holds it, and ranges that are done."""
    state = proposed(40, (43, 45), (48, 49))
    delivery = plan_delivery(state, (SPACE,), 51, 0, DeliveryLimits())
    new = [OffsetRange(cell.from_offset, cell.until_offset) for cell in delivery.cells]
    assert [record.offset for record in delivery.redelivered] == [41, 42, 46, 47]
    assert new == [OffsetRange(50, 51)]
