"""Which files a sender sends, and the mark that says what is out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.sending.model.marks import Mark, read_mark
from keyrange.sending.model.shards import shared_out

MIB = 1 << 20


@given(st.integers(-1, 2**40), st.integers(0, 2**40), st.integers(1, 256), st.text(max_size=9))
def test_a_mark_is_read_as_it_was_written(
    batch_id: int, driver: int, senders: int, plan: str
) -> None:
    mark = Mark(batch_id, driver, senders, plan)
    assert mark.offset >= 0
    assert read_mark(mark.offset, mark.text) == mark


@pytest.mark.parametrize(
    ("offset", "text"), [(1, ""), (1, "{"), (1, "[]"), (1, "{}"), (-1, Mark(0).text), (0, "1")]
)
def test_an_offset_of_somebody_else_is_no_mark(offset: int, text: str) -> None:
    assert read_mark(offset, text) is None


def test_a_batch_is_out_with_it_and_with_all_later_ones() -> None:
    assert [Mark(4).is_out(batch_id) for batch_id in (3, 4, 5)] == [True, True, False]


def test_the_most_senders_that_there_were_are_kept() -> None:
    assert Mark(4, 1, 8).of_driver(2, 3) == Mark(4, 2, 8)
    assert Mark(4, 1, 2).of_driver(2, 3) == Mark(4, 2, 3)


@given(st.lists(st.integers(1, 200 * MIB), min_size=1, max_size=60), st.integers(1, 20))
def test_files_are_shared_out_once_each_and_evenly(sizes: list[int], senders: int) -> None:
    shares = shared_out(sizes, senders)
    assert sorted(at for share in shares for at in share) == list(range(len(sizes)))
    assert all(share == sorted(share) and share for share in shares)
    assert len(shares) <= min(senders, len(sizes))
    loads = [sum(sizes[at] for at in share) for share in shares]
    # Nobody could give a whole file to the one that has least.
    assert max(loads) - min(loads) <= max(sizes)


def test_a_small_batch_has_one_sender() -> None:
    assert shared_out([MIB] * 6, 8) == [[0, 1, 2, 3, 4, 5]]
    assert len(shared_out([MIB] * 20, 8)) == 3
