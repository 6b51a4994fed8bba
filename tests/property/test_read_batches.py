"""What a directory says that it has read, against a list of what it was given.

Batches are read by the slot, in part, by others, or by anybody; drivers and executors begin anew,
batches are planned again, and now and then nobody knows what was planned before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from keyrange.members.model.read_batches import ReadBatches
from project.forms import by_form


@dataclass
class Truth:
    """Which portions of each batch there are of the slot's ranges, and which it was given."""

    there: dict[int, int] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)

    def is_whole(self, batch: int) -> bool:
        return self.there[batch] == 0 or batch in self.whole


@pytest.mark.parametrize("seed", range(by_form(50, 100, 1_000)))
def test_no_batch_is_said_to_be_read_that_was_not(seed: int) -> None:
    random = Random(seed)
    truth = Truth()
    known: ReadBatches | None = None
    # What the driver of this run knows: batches that had something, None for one it cannot tell.
    planned: list[tuple[int, int] | None] = []
    longest = batch = 0
    while batch < 60:
        truth.there.setdefault(batch, random.choice([0, 1, 2, 3]))
        count = truth.there[batch]
        plan = f"plan-{random.random()}"
        by = random.choice(["own", "own", "own", "own", "part", "others", "anybody"])
        last = last_of(planned, batch)
        given = set(range(count)) if by == "own" else set()
        if by == "part":
            given = {number for number in range(count) if random.random() < 0.5}
        if given or (by == "own" and random.random() < 0.5):
            known = (known or ReadBatches(batch, batch)).reaches(batch, last)
            checks(known, truth, batch + 1)
        for number in random.sample(sorted(given), len(given)):
            assert known is not None
            known = known.with_portion(batch, plan, number, count)
            # Also by an attempt that is made again.
            known = known.with_portion(batch, plan, number, count)
        if count and given == set(range(count)):
            truth.whole.add(batch)
        if known is not None:
            checks(known, truth, batch + 1)
            longest = max(longest, len(known.batches))
            if by == "own" and count:
                assert known.stop == batch + 1
        planned.append(None if by == "anybody" else (batch, count))
        if random.random() < 0.1:
            planned = []
        if random.random() < 0.8:
            batch += 1
    assert longest > 1


def last_of(planned: list[tuple[int, int] | None], batch: int) -> int:
    for found in reversed(planned):
        if found is None:
            break
        if found[0] < batch and found[1]:
            return found[0]
    return batch - 1


def checks(known: ReadBatches, truth: Truth, until: int) -> None:
    assert known.stop <= until
    assert all(truth.is_whole(each) for each in known.batches)


def test_a_checkpoint_that_was_set_back_counts_anew() -> None:
    known = ReadBatches(3, 9)
    assert known.reaches(8, 7) == known
    assert known.reaches(7, 6) == ReadBatches(7, 7)
