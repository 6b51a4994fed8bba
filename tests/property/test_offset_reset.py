"""States set by hand against a plain set of records: what is done, what is a pending record, what
comes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.model.offset_reset import carried, reopen, rewind, skip
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import HASH_MAX, KeyRange, complement
from keyrange.work.model.outcome import Cause, RecordOutcome
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.commit_model import apply_verdict, plan_delivery

OFFSETS = range(12)
# One of every piece that the bounds below can make.
PLACES = [0, 1, 2, 2**62 - 1, 2**62, HASH_MAX]
RECORDS = {(offset, key_hash) for offset in OFFSETS for key_hash in PLACES}
BOUNDS = [1, 2, 2**62 - 1, 2**62, HASH_MAX]


@st.composite
def states(draw: Any) -> PartitionState:
    cuts = [0, *sorted(draw(st.sets(st.sampled_from(BOUNDS)))), HASH_MAX + 1]
    position = draw(st.integers(0, len(OFFSETS)))
    pending = draw(st.sets(st.sampled_from(sorted(RECORDS)), max_size=8))
    # Of one partition an offset is one record.
    pending = set(dict(sorted(pending)).items())
    pieces = []
    for span in (KeyRange(a, b) for a, b in pairwise(cuts)):
        scanned = draw(st.integers(0, position))
        own = [
            PendingRecord(*h, deliveries=2)
            for h in pending
            if span.contains(h[1]) and h[0] < scanned
        ]
        pieces.append(KeyRangeState(span, scanned, tuple(sorted(own))))
    return PartitionState("id", position, tuple(pieces))


def pending(state: PartitionState) -> set[tuple[int, int]]:
    return {(pending_record.offset, pending_record.key_hash) for pending_record in state.pending}


def done(state: PartitionState) -> set[tuple[int, int]]:
    scanned = {(o, p) for o, p in RECORDS if o < state.piece_of(p).scanned}
    return scanned - pending(state)


targets = st.integers(0, len(OFFSETS))


@given(states(), targets)
def test_a_rewind_undoes_what_is_at_or_above_it(state: PartitionState, to: int) -> None:
    to = min(to, state.position)
    reset = rewind(state, to)
    after = reset.state
    assert done(after) == {(o, p) for o, p in done(state) if o < to}
    assert pending(after) == {(o, p) for o, p in pending(state) if o < to}
    undone = done(state) - done(after)
    covered = {o for each in reset.again for o in range(each.from_offset, each.until_offset)}
    assert covered == {o for o, _ in undone} - {o for o, _ in pending(state)}
    assert (after.position, after.topic_id) == (state.position, state.topic_id)
    assert after.merged() == after


@given(states(), targets)
def test_a_skip_does_what_is_below_it(state: PartitionState, to: int) -> None:
    to = min(to, state.position)
    reset = skip(state, to)
    after = reset.state
    assert done(after) == done(state) | {(o, p) for o, p in RECORDS if o < to}
    assert pending(after) == {(o, p) for o, p in pending(state) if o >= to}
    assert {(h.offset, h.key_hash) for h in reset.given_up} == pending(state) - pending(after)
    never = done(after) - done(state) - pending(state)
    covered = {o for each in reset.passed_over for o in range(each.from_offset, each.until_offset)}
    assert covered == {o for o, _ in never}
    assert (after.position, after.topic_id) == (state.position, state.topic_id)


@given(states(), st.data())
def test_what_is_reopened_is_a_hole_that_is_due(state: PartitionState, data: Any) -> None:
    at = {pending_record.offset: pending_record.key_hash for pending_record in state.pending}
    wanted = data.draw(st.dictionaries(st.sampled_from(OFFSETS), st.sampled_from(PLACES)))
    wanted = {offset: at.get(offset, key_hash) for offset, key_hash in wanted.items()}
    found = reopen(state, wanted.items(), now_ms=7)
    after = found.state
    opened = done(state) & set(wanted.items())
    assert {(h.offset, h.key_hash) for h in found.opened} == opened
    assert {(h.deliveries, h.due_ms, h.since_ms) for h in found.opened} <= {(0, 7, 7)}
    assert pending(after) == pending(state) | opened
    assert set(state.pending) <= set(after.pending)
    assert done(after) == done(state) - opened
    assert set(found.open_already) == at.keys() & wanted.keys()
    told = (
        {pending_record.offset for pending_record in found.opened}
        | {*found.open_already}
        | {*found.to_come}
    )
    assert told == set(wanted)
    assert [piece.scanned for piece in after.pieces] == [piece.scanned for piece in state.pieces]


@given(states(), targets)
def test_what_was_set_once_is_set(state: PartitionState, to: int) -> None:
    to = min(to, state.position)
    for change in (rewind, skip):
        once = change(state, to).state
        again = change(once, to)
        assert again.state.merged() == once.merged()
        assert (again.again, again.given_up, again.passed_over) == ((), (), ())


@st.composite
def batches(draw: Any) -> tuple[PartitionState, PartitionState]:
    """A state, and what a batch that was planned from it came to."""
    state = draw(states())
    spans = [piece.span for piece in state.pieces][:: draw(st.sampled_from([1, 7]))]
    spans = [*spans, *complement(spans)]
    end = state.position + draw(st.integers(0, 3))
    delivery = plan_delivery(state, sorted(spans), end, 0, DeliveryLimits())
    again = [RecordOutcome(h.offset, h.key_hash, Cause.REJECTED) for h in delivery.redelivered]
    taken = {h.offset for h in state.pending}
    new = [
        RecordOutcome(offset, key_hash, Cause.REJECTED)
        for offset in range(end)
        for key_hash in [draw(st.sampled_from(PLACES))]
        if offset not in taken and state.piece_of(key_hash).scanned <= offset
    ]
    wrong = draw(st.lists(st.sampled_from(again + new), unique=True)) if again + new else []
    back = [cell for cell in delivery.cells if draw(st.booleans())]
    kept = [each for each in wrong if not any(cell.span.contains(each.key_hash) for cell in back)]
    verdict = PartitionVerdict(
        tuple(sorted(kept, key=lambda each: each.offset)),
        tuple((cell.span, cell.from_offset) for cell in back),
    )
    return state, apply_verdict(state, delivery, verdict, RedeliveryPolicy(9), 1).state


@given(batches(), targets, st.sampled_from(["rewind", "skip", "reopen"]), st.data())
def test_what_was_set_while_a_batch_ran_stays_set(
    batch: tuple[PartitionState, PartitionState], to: int, how: str, data: Any
) -> None:
    before, judged = batch
    to = min(to, before.position)
    if how == "reopen":
        at = {pending_record.offset for pending_record in (*before.pending, *judged.pending)}
        records = sorted(record for record in done(before) if record[0] not in at)
        wanted = data.draw(st.lists(st.sampled_from(records))) if records else []
        after = reopen(before, dict(wanted).items(), 7).state
    else:
        after = (rewind if how == "rewind" else skip)(before, to).state
    found = carried(judged, before, after)
    assert found.position == judged.position
    # Undone by hand is not done by the batch, and the other way round.
    assert not done(found) & (done(before) - done(after))
    assert done(after) <= done(found)
    if how == "rewind":
        for key_hash in PLACES:
            rewound = before.piece_of(key_hash).scanned > to
            scanned = to if rewound else judged.piece_of(key_hash).scanned
            assert found.piece_of(key_hash).scanned == scanned
        kept = {(o, p) for o, p in pending(judged) if o < found.piece_of(p).scanned}
        assert pending(found) == kept
    elif how == "skip":
        assert pending(found) == {(o, p) for o, p in pending(judged) if o >= to}
        assert done(judged) <= done(found)
    else:
        assert pending(found) == pending(judged) | (pending(after) - pending(before))
    assert carried(judged, before, before) == judged


@given(states(), states())
def test_more_than_a_reset_is_not_carried(before: PartitionState, after: PartitionState) -> None:
    moved = PartitionState("id", after.position + 13, after.pieces)
    with pytest.raises(ValueError, match="meanwhile"):
        carried(before, before, moved)


@given(states())
def test_no_further_than_the_position(state: PartitionState) -> None:
    for change in (rewind, skip):
        for to in (-1, state.position + 1):
            with pytest.raises(ValueError, match=f"offset {to} is not within"):
                change(state, to)
