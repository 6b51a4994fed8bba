"""Counting again: are the records of a sink exactly those that the commits say are done?

Rule of this file: arrays and states come in, what differs goes out; nothing is read or printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np

from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.offsets import OffsetRange

Numbers = np.ndarray[Any, np.dtype[np.int64]]

EXAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class Log:
    """The records that a partition's log holds within `span`: their offsets, in order, and the
    places of their keys."""

    span: OffsetRange
    offsets: Numbers
    key_hashes: Numbers


@dataclass(frozen=True, slots=True)
class Offsets:
    """How many offsets, and the first of them."""

    count: int = 0
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recount:
    """What of a partition differs.

    `judged` is where something can be said, `records` how many should be in the sink there, None
    where only the offsets are known. Of `unsure` rows of the sink nothing can be said without the
    keys. `unexpected` are by the reason why they should not be there.
    """

    judged: OffsetRange
    in_sink: int
    records: int | None
    missing: Offsets = Offsets()
    doubled: Offsets = Offsets()
    unexpected: Mapping[str, Offsets] = field(default_factory=dict)
    unsure: int = 0

    def agrees(self, may_miss: bool) -> bool:
        faults = [self.doubled, *self.unexpected.values()]
        return not any(each.count for each in (faults if may_miss else [*faults, self.missing]))


def recount(
    state: PartitionState,
    in_sink: Numbers,
    begin: int,
    dead: Numbers,
    transactional: bool,
    log: Log | None = None,
) -> Recount:
    """Hold a sink's offsets (in order, with repetitions) against the state of their partition.

    `begin` is where the query began, `dead` are the offsets that lie in the dead letters. A
    `transactional` query hands its sink nothing at or above the committed offset.
    """
    present, times = np.unique(in_sink, return_counts=True)
    pending = np.array([record.offset for record in state.pending], np.int64)
    exempt = np.union1d(pending, dead)
    # Below `least` everything was scanned, from `most` on nothing.
    least = state.committed if transactional else state.scanned
    most = state.committed if transactional else max(each.scanned for each in state.pieces)
    unexpected = {
        "pending": np.intersect1d(present, pending),
        "dead letter": np.intersect1d(present, dead),
        "not handed out": present[present >= most],
        "before the query began": present[present < begin],
    }
    rest = _without(present[(present >= begin) & (present < most)], exempt)
    if log is None:
        judged = OffsetRange(begin, max(least, begin))
        records, unsure = None, int((rest >= least).sum())
        missing = _gaps(np.union1d(rest, exempt), judged)
    else:
        judged = OffsetRange(max(begin, log.span.from_offset), log.span.until_offset)
        done = log.offsets[_done(state, log, least if transactional else None)]
        expected = _without(done[done >= judged.from_offset], exempt)
        within = rest[(rest >= judged.from_offset) & (rest < judged.until_offset)]
        records, unsure = len(expected), len(rest) - len(within)
        missing = counted(_without(expected, present))
        unexpected["not in the log"] = _without(within, log.offsets)
        early = _without(np.intersect1d(within, log.offsets), expected)
        unexpected["not handed out"] = np.union1d(unexpected["not handed out"], early)
    return Recount(
        judged,
        len(in_sink),
        records,
        missing,
        counted(present[times > 1]),
        {why: counted(offsets) for why, offsets in unexpected.items() if len(offsets)},
        unsure,
    )


def counted(offsets: Numbers) -> Offsets:
    return Offsets(len(offsets), tuple(offsets[:EXAMPLES].tolist()))


def _gaps(offsets: Numbers, within: OffsetRange) -> Offsets:
    """The offsets of a range that are not among some sorted ones; a range may be very long."""
    inside = offsets[(offsets >= within.from_offset) & (offsets < within.until_offset)]
    before = np.concatenate(([within.from_offset - 1], inside))
    behind = np.concatenate((inside, [within.until_offset]))
    gaps = np.flatnonzero(behind - before > 1)[:EXAMPLES]
    numbers = (number for gap in gaps for number in range(before[gap] + 1, behind[gap]))
    return Offsets(within.size - len(inside), tuple(map(int, islice(numbers, EXAMPLES))))


def _done(state: PartitionState, log: Log, below: int | None) -> Any:
    """Which records of the log lie below what their key range has scanned."""
    if below is not None:
        return log.offsets < below
    begins = np.array([piece.span.from_hash for piece in state.pieces], np.int64)
    scanned = np.array([piece.scanned for piece in state.pieces], np.int64)
    return log.offsets < scanned[np.searchsorted(begins, log.key_hashes, side="right") - 1]


def _without(offsets: Numbers, others: Numbers) -> Numbers:
    return np.setdiff1d(offsets, others, assume_unique=True) if len(others) else offsets
