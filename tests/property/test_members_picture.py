"""The picture of the hash space, against one that looks at every hash of a coarse space."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from keyrange.cli.members.commands import draw
from keyrange.model.key_ranges import KeyRange
from keyrange.report.wording import OTHERS, slot_marks
from samples import strategies  # noqa: F401 the profiles

STEP = 2**63 // 64
SLOTS = st.sampled_from(["a", "b", "c"])


@given(owners=st.lists(SLOTS, min_size=64, max_size=64), width=st.sampled_from([1, 8, 16, 64, 128]))
def test_each_cell_is_of_who_owns_most_of_it(owners: list[str], width: int) -> None:
    owned = [(KeyRange(at * STEP, (at + 1) * STEP), slot) for at, slot in enumerate(owners)]
    marks = slot_marks(["a", "b", "c"])
    line = draw(owned, marks, width)
    assert len(line) == width
    slots = {mark: slot for slot, mark in marks.items()}
    for cell, mark in enumerate(line):
        inside = owners[cell * 64 // width : max((cell + 1) * 64 // width, cell * 64 // width + 1)]
        counts = Counter(inside)
        assert counts[slots[mark]] == max(counts.values())


@given(count=st.integers(0, 100))
def test_slots_have_marks_of_their_own_as_far_as_there_are_letters(count: int) -> None:
    marks = slot_marks([f"slot-{at}" for at in range(count)])
    letters = [mark for mark in marks.values() if mark != OTHERS]
    assert len(marks) == count
    assert len(set(letters)) == len(letters) == min(count, 62)
