"""Names in the commit table: who has ended leaves its own to the next one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from keyrange.consumer.holding import new_ledger
from keyrange.consumer.ledger import Ledger
from keyrange.consumer.settings import parse_consumer_options
from keyrange.core.key_ranges import SPACE, split_evenly
from keyrange.core.offsets import TopicPartition
from keyrange.errors import KeyrangeError

PREFIX = "g-dynamic-"
FIRST = TopicPartition("t", 0)
HOUR = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "commits"


def ledger(table: Path, slot: str) -> Ledger:
    options = {"kafka.bootstrap.servers": "h:1", "commitTable": str(table), "commitGroup": "g"}
    begin = lambda wanted, _later: dict.fromkeys(wanted, 0)  # noqa: E731
    return new_ledger(parse_consumer_options(options), slot, begin)


def started(table: Path, number: int) -> tuple[Ledger, str | None]:
    """A dynamic consumer that takes everything."""
    made = ledger(table, f"{PREFIX}{number:08x}")
    name = made.adopt(PREFIX, now_ms(), set)
    made.take({FIRST: [SPACE]}, {})
    return made, name


def test_starts_leave_no_names_behind(table: Path) -> None:
    names = []
    for number in range(4):
        made, name = started(table, number)
        names.append(name)
        made.close()

    assert names == [None, *[f"{PREFIX}00000000"] * 3]
    assert list(ledger(table, "g-x").claims()) == [f"consumer/g/{PREFIX}00000000"]


def test_one_that_lives_keeps_its_name(table: Path) -> None:
    first, _ = started(table, 1)
    second, name = started(table, 2)

    assert name is None
    # What it had is another's now, and it has not been looked at.
    assert ledger(table, "g-x").adopt(PREFIX, now_ms() + HOUR - 60_000, set) is None
    first.close()
    assert not ledger(table, "g-x").claims()[f"consumer/g/{PREFIX}00000001"].closed
    second.close()


def test_one_that_was_killed_leaves_its_name_after_a_while(table: Path) -> None:
    started(table, 1)
    started(table, 2)
    later = now_ms() + HOUR + 1
    killed = f"{PREFIX}00000001"

    assert ledger(table, "g-x").adopt("g-other-", later, set) is None
    assert ledger(table, "g-x").adopt(PREFIX, later, lambda: {killed}) is None
    assert ledger(table, "g-x").adopt(PREFIX, later, set) == killed


def test_of_two_who_want_a_name_one_gets_it(table: Path) -> None:
    started(table, 1)
    started(table, 2)
    later, quick = now_ms() + HOUR + 1, []

    def meanwhile() -> set[str]:
        quick.append(ledger(table, "g-y").adopt(PREFIX, later, set))
        return set()

    assert ledger(table, "g-x").adopt(PREFIX, later, meanwhile) is None
    assert quick == [f"{PREFIX}00000001"]


def test_who_goes_on_has_what_was_done_and_the_one_before_can_change_nothing(table: Path) -> None:
    first, _ = started(table, 1)
    first.close()
    heir = ledger(table, f"{PREFIX}00000009")
    assert heir.adopt(PREFIX, now_ms(), set) == f"{PREFIX}00000001"
    low, _ = split_evenly(SPACE, 2)
    taken = heir.take({FIRST: [low]}, {})

    assert [piece.span for piece in taken.pieces[FIRST]] == [low]
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        first.commit({FIRST: [*taken.pieces[FIRST]]})
