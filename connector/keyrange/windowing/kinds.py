"""Which windows records belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from keyrange.windowing.aggregates import Aggregate, Columns
from keyrange.windowing.operators import Lasts, Numbers
from keyrange.windowing.slots import Slots, sessions_of, slots_of


class Windows(NamedTuple):
    """Windows of groups, with the accumulators of each aggregate. Times are in microseconds since
    1970."""

    groups: Numbers
    starts: Numbers
    ends: Numbers
    columns: list[Columns]

    def at(self, rows: Numbers) -> Windows:
        taken = pa.array(rows)
        columns = [[each.take(taken) for each in some] for some in self.columns]
        return Windows(self.groups[rows], self.starts[rows], self.ends[rows], columns)

    def behind(self, before: Windows) -> Windows:
        """Those behind others."""
        columns = [
            [pa.concat_arrays(pair) for pair in zip(first, then, strict=True)]
            for first, then in zip(before.columns, self.columns, strict=True)
        ]
        groups, starts, ends = (np.concatenate((before[at], self[at])) for at in range(3))
        return Windows(groups, starts, ends, columns)


def accumulated(
    columns: list[Columns], slots: Slots, aggregates: Sequence[Aggregate]
) -> list[Columns]:
    """The accumulators of each slot."""
    pairs = zip(aggregates, columns, strict=True)
    return [aggregate.merged(own, slots) for aggregate, own in pairs]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Windows of one size, which begin each `step` from 1970 on."""

    size_us: int
    step_us: int

    def __str__(self) -> str:
        size = f"windows of {_seconds(self.size_us)}"
        return size if self.size_us == self.step_us else f"{size} each {_seconds(self.step_us)}"

    def of_records(
        self, groups: Numbers, times: Numbers, columns: list[Columns], all_: Sequence[Aggregate]
    ) -> Windows:
        """Windows of records, several of the same one, or with less than all of it."""
        # In pieces of this size records belong to the same windows.
        piece_us = math.gcd(self.size_us, self.step_us)
        numbers = times // piece_us
        if self.size_us == self.step_us:
            starts = numbers * piece_us
            return Windows(groups, starts, starts + self.size_us, columns)
        slots = slots_of(groups, numbers)
        first = slots.first
        pieces = accumulated(columns, slots, all_)
        begins = numbers[first] * piece_us
        latest = begins // self.step_us * self.step_us
        counts = (latest - (begins + piece_us - self.size_us)) // self.step_us + 1
        rows = np.repeat(np.arange(slots.count), counts)
        back = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = latest[rows] - back * self.step_us
        taken = [[each.take(pa.array(rows)) for each in some] for some in pieces]
        return Windows(groups[first][rows], starts, starts + self.size_us, taken)

    def merged(self, windows: Windows, all_: Sequence[Aggregate]) -> tuple[Windows, Slots]:
        """Windows that are whole, in the order of groups and starts."""
        slots = slots_of(windows.groups, windows.starts // self.step_us)
        first = slots.first
        times = windows.groups[first], windows.starts[first], windows.ends[first]
        return Windows(*times, accumulated(windows.columns, slots, all_)), slots

    def closes(self, ends: Numbers) -> Numbers:
        """The watermark at which no more record can belong to a window."""
        return ends

    def lasts(self, start: str, end: str) -> Lasts:
        """How long windows may be that were kept elsewhere, from column `start` to `end`."""
        return Lasts(start, end, self.size_us, self.size_us, self.step_us)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows that last until no record came for some time."""

    gap_us: int

    def __str__(self) -> str:
        return f"sessions with a gap of {_seconds(self.gap_us)}"

    def of_records(
        self, groups: Numbers, times: Numbers, columns: list[Columns], _all: Sequence[Aggregate]
    ) -> Windows:
        return Windows(groups, times, times + self.gap_us, columns)

    def merged(self, windows: Windows, all_: Sequence[Aggregate]) -> tuple[Windows, Slots]:
        slots, groups, starts, ends = sessions_of(windows.groups, windows.starts, windows.ends)
        return Windows(groups, starts, ends, accumulated(windows.columns, slots, all_)), slots

    def closes(self, ends: Numbers) -> Numbers:
        # A record at its very end still belongs to a session, as in Spark.
        return ends + 1

    def lasts(self, start: str, end: str) -> Lasts:
        return Lasts(start, end, self.gap_us)


# How windows lie in time.
Kind = Fixed | Sessions


def _seconds(time_us: int) -> str:
    return f"{time_us / 1_000_000:.15g} s"
