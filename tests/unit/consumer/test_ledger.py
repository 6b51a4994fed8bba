"""Names in the commit table: who has ended leaves its own to the next one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from keyrange.consumer import api
from keyrange.consumer.api import Consumer
from keyrange.consumer.holding import new_ledger
from keyrange.consumer.ledger import Ledger
from keyrange.consumer.settings import parse_consumer_options
from keyrange.core.key_ranges import SPACE, split_evenly
from keyrange.core.members.shares import Interest, write_interest
from keyrange.core.offsets import TopicPartition
from keyrange.errors import KeyrangeError
from keyrange.kafka.membership import GroupMemberView, GroupView

PREFIX = "g-dynamic-"
FIRST = TopicPartition("t", 0)
HOUR = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "commits"


def options(table: Path) -> dict[str, str]:
    return {"kafka.bootstrap.servers": "h:1", "commitTable": str(table), "commitGroup": "g"}


def ledger(table: Path, slot: str) -> Ledger:
    begin = lambda wanted, _later: dict.fromkeys(wanted, 0)  # noqa: E731
    return new_ledger(parse_consumer_options(options(table)), slot, begin)


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


def test_while_nobody_can_say_who_lives_only_closed_names_are_taken(table: Path) -> None:
    started(table, 1)
    second, _ = started(table, 2)
    later = now_ms() + HOUR + 1

    assert ledger(table, "g-x").adopt(PREFIX, later, lambda: None) is None
    second.close()
    assert ledger(table, "g-x").adopt(PREFIX, later, lambda: None) == f"{PREFIX}00000002"


@pytest.mark.parametrize(
    ("state", "is_adopted"), [("Stable", False), ("PreparingRebalance", False), ("Empty", True)]
)
def test_a_spare_that_lives_keeps_its_name_in_a_rebalance(
    table: Path, monkeypatch: pytest.MonkeyPatch, state: str, is_adopted: bool
) -> None:
    """While a group rebalances Kafka tells nobody's metadata."""
    spare = f"{PREFIX}00000001"
    ledger(table, spare).take({FIRST: []}, {})
    metadata = write_interest(Interest(spare, ("t",))) if state == "Stable" else b""
    members = () if state == "Empty" else (GroupMemberView("m", None, "h", metadata),)
    monkeypatch.setattr(api, "describe_members", lambda *_: GroupView(state, members))
    two_hours_on = SimpleNamespace(time_ns=lambda: time.time_ns() + 2 * HOUR * 1_000_000)
    monkeypatch.setattr(api, "time", two_hours_on)

    consumer = Consumer({**options(table), "memberNames": "dynamic"})
    consumer._settle()
    assert (consumer._name.name == spare) is is_adopted


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
