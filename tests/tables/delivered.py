"""Partitions with a state, what a batch hands out of them, and what of it a split delivers.

The log is a list of places, one for each offset; what a split delivers of it is found record by
record, as the compiled pass does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.model.commit_settings import DeliveryLimits
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.model.offset_splits import Split
from tables.commit_model import plan_delivery

PLACES = [0, 1, 2, 2**60, 2**61 - 1, 2**61, 2**62 - 1, 2**62, 2**62 + 5, HASH_MAX - 1, HASH_MAX]
Log = Sequence[int]


@st.composite
def cuts(draw: st.DrawFn) -> list[KeyRange]:
    if draw(st.booleans()):
        return split_evenly(SPACE, draw(st.sampled_from([1, 2, 4, 16])))
    inside = draw(st.sets(st.sampled_from(PLACES[1:])))
    return [KeyRange(a, b) for a, b in pairwise([0, *sorted(inside), HASH_MAX + 1])]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Log, PartitionDelivery, list[KeyRange]]:
    """A log, what a batch hands out of it, and the key ranges that it is read in."""
    position = draw(st.integers(0, 25))
    end = position + draw(st.sampled_from([0, 0, 1, 7, 20]))
    log = draw(st.lists(st.sampled_from(PLACES), min_size=end, max_size=end))
    pieces: list[KeyRangeState] = []
    for span in draw(cuts()):
        scanned = draw(st.sampled_from([position, position, max(position - 4, 0), 0]))
        own = [at for at in range(scanned) if span.contains(log[at])]
        pending = draw(st.sets(st.sampled_from(own), max_size=6)) if own else set()
        due = st.sampled_from([0, 5, 99])
        found = (PendingRecord(at, log[at], due_ms=draw(due)) for at in sorted(pending))
        pieces.append(KeyRangeState(span, scanned, tuple(found)))
    state = PartitionState("", position, tuple(pieces))
    spans = draw(cuts())
    limits = DeliveryLimits(draw(st.sampled_from([10_000, 1, 2, 6])))
    due_ms = draw(st.sampled_from([-1, 5, 100]))
    return log, plan_delivery(state, spans, end, due_ms, limits, draw(st.booleans())), spans


def delivered(split: Split, log: Log) -> Iterator[int]:
    """The offsets that a task has of a split."""
    for offset in range(split.from_offset, split.until_offset):
        found, key_hash = split.delivery, log[offset]
        if found is not None and offset not in found.offsets:
            at = bisect_left(found.uppers, key_hash)
            if not (found.uppers and found.froms[at] <= offset < found.untils[at]):
                continue
        if split.placement is not None:
            owner = split.placement.owners[bisect_left(split.placement.uppers, key_hash)]
            if owner != split.placement.reader:
                continue
        yield offset


def handed_out(delivery: PartitionDelivery, log: Log) -> list[int]:
    again = {record.offset for record in delivery.redelivered}
    return [
        offset
        for offset, key_hash in enumerate(log)
        if offset in again
        or any(
            cell.span.contains(key_hash) and cell.from_offset <= offset < cell.until_offset
            for cell in delivery.cells
        )
    ]
