"""Which of many rows belong together, by numbers without gaps: the slots."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyrange.windowing.operators import Numbers
from keyrange.work.keyed_states import first_rows

# Tables of places are used in place of sorting as long as they have not many times more places
# than there are rows.
_PLACES_PER_ROW: Final = 4


class Slots:
    """`of` says of each row its slot, `count` how many there are."""

    def __init__(self, of: Numbers, count: int) -> None:
        self.of = of
        self.count = count

    def chosen(self, order: Numbers, takes_last: bool, valid: NDArray[np.bool_]) -> pa.Array:
        """Of each slot the row that comes first in an order of all rows, or last, among those that
        are valid; null where none is."""
        rows = order if takes_last else order[::-1]
        rows = rows[valid[rows]]
        found = np.full(self.count, -1, np.int64)
        # What is written last stays.
        found[self.of[rows]] = rows
        return pa.array(found, mask=found < 0)

    @cached_property
    def first(self) -> Numbers:
        """The first row of each slot."""
        return first_rows(self.of, self.count)


def pair_codes(groups: Numbers, numbers: Numbers) -> tuple[Numbers, int]:
    """A number for each pair, in the order of the pairs, and a bound of all of them."""
    if not len(groups):
        return groups, 0
    least, count = int(numbers.min()), int(groups.max()) + 1
    span = int(numbers.max()) - least + 1
    if span * count > np.iinfo(np.int64).max:
        distinct, numbers = np.unique(numbers, return_inverse=True)
        least, span = 0, len(distinct)
    return groups.astype(np.int64) * span + (numbers - least), span * count


def slots_of(groups: Numbers, numbers: Numbers) -> Slots:
    """A slot for each pair that there is, in the order of the pairs."""
    codes, bound = pair_codes(groups, numbers)
    if bound > _PLACES_PER_ROW * len(codes):
        distinct, inverse = np.unique(codes, return_inverse=True)
        return Slots(inverse, len(distinct))
    is_there = np.zeros(bound, bool)
    is_there[codes] = True
    places = np.cumsum(is_there) - 1
    return Slots(places[codes], int(places[-1]) + 1 if bound else 0)


def sessions_of(
    groups: Numbers, starts: Numbers, ends: Numbers
) -> tuple[Slots, Numbers, Numbers, Numbers]:
    """A slot for all stretches of time of a group that overlap or touch, in the order of groups and
    starts, with its group, start and end."""
    if not len(groups):
        return Slots(groups, 0), groups, starts, ends
    codes, _ = pair_codes(np.concatenate((groups, groups)), np.concatenate((starts, ends)))
    begin, end = codes[: len(groups)], codes[len(groups) :]
    order = np.argsort(begin, kind="stable")
    # The codes of a later group are above all of an earlier one.
    reached = np.maximum.accumulate(end[order])
    is_new = np.append(True, begin[order][1:] > reached[:-1])
    is_new[1:] |= groups[order][1:] != groups[order][:-1]
    numbers = np.cumsum(is_new) - 1
    of = np.empty(len(order), np.int64)
    of[order] = numbers
    first = np.flatnonzero(is_new)
    latest = np.maximum.reduceat(ends[order], first)
    return Slots(of, len(first)), groups[order][first], starts[order][first], latest
