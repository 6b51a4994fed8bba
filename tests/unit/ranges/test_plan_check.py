"""A plan by partition is checked split by split."""

from __future__ import annotations

import pytest

from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import SPACE
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.ranges.model.plan_check import Area, HandedOut, check_plan, without_whole

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)
RANGES = {ONE: OffsetRange(3, 9), TWO: OffsetRange(0, 5)}
WHOLE = [Split(ONE, 3, 9, 0), Split(TWO, 0, 5, 0)]


def check(*splits: Split) -> int:
    """How many splits were left to be looked at by areas."""
    ranges = dict(RANGES)
    left = without_whole(splits, ranges)
    check_plan(
        left,
        {
            p: HandedOut((Area(SPACE, each.from_offset, each.until_offset),))
            for p, each in ranges.items()
        },
    )
    return len(left)


def test_of_whole_partitions_nothing_is_left() -> None:
    assert check(*WHOLE) == 0


def test_what_is_cut_is_left() -> None:
    assert check(WHOLE[0], Split(TWO, 0, 2, 0), Split(TWO, 2, 5, 0)) == 2


@pytest.mark.parametrize(
    "splits",
    [
        WHOLE[:1],
        [*WHOLE, WHOLE[1]],
        [*WHOLE, Split(TWO, 1, 2, 0)],
        [WHOLE[0], Split(TWO, 0, 4, 0)],
        [WHOLE[0], Split(TWO, 0, 6, 0)],
        [*WHOLE, Split(TopicPartition("t", 3), 0, 1, 0)],
    ],
)
def test_what_is_read_twice_or_not_at_all_is_found(splits: list[Split]) -> None:
    with pytest.raises(KeyrangeError, match="INCONSISTENT_PLAN"):
        check(*splits)
